{{- define "inferno.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: inferno
{{- end }}

{{- define "inferno.releaseLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "inferno.name" -}}
{{- /* An object in no namespace (`everywhere`) is told apart from that of another release. */ -}}
{{ .name }}{{ if .everywhere }}:{{ .root.Release.Namespace }}:{{ .root.Release.Name }}{{ end }}
{{- end }}

{{- define "inferno.metadata" -}}
{{- /* Of an object of `root` that is called `name` and belongs to `app`, with more `labels`;
`everywhere`: it is in no namespace. */ -}}
name: {{ include "inferno.name" . }}
{{- if not .everywhere }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- $own := merge (include "inferno.labels" .app | fromYaml) (include "inferno.releaseLabels" .root | fromYaml) }}
labels: {{ merge $own (.labels | default dict) | toYaml | nindent 2 }}
{{- end }}

{{- define "inferno.image" -}}
{{- $version := .Values.image.tag | default .Chart.AppVersion -}}
image: {{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ $version }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "inferno.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "inferno.account" -}}
{{ .Values.serviceAccount.name | default "inferno-operator" }}
{{- end }}

{{- define "inferno.podMetadata" -}}
{{- /* Of pods of `app`; their own labels go before those of the values. */ -}}
labels: {{ merge (include "inferno.labels" .app | fromYaml) .root.Values.podLabels | toYaml | nindent 2 }}
{{- with .root.Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "inferno.podSettings" -}}
{{- /* What pods of `app` have in common; `secrets`: they read some. */ -}}
enableServiceLinks: false # they would inject INFERNO_* variables that are not ours
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- if .secrets }}
  fsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- else }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ .app }}
{{- end }}
{{- with .root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $counted := dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $.app)) }}
  {{- range . }}
  - {{ merge (dict) . $counted | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "inferno.secretMounts" -}}
- name: tls
  mountPath: /var/run/secrets/inferno/tls
  readOnly: true
- name: token
  mountPath: /var/run/secrets/inferno/token
  readOnly: true
{{- end }}

{{- define "inferno.secretVolumes" -}}
{{- /* The token, and of the certificates what is in `keys`. */ -}}
- name: tls
  secret:
    secretName: {{ .root.Values.remote.tlsSecret }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - key: {{ . }}
        path: {{ . }}
      {{- end }}
- name: token
  secret:
    secretName: {{ .root.Values.remote.tokenSecret }}
    defaultMode: 0440
{{- end }}

{{- define "inferno.temporaryVolume" -}}
- name: temporary # the fallback solver exchanges files
  emptyDir:
    sizeLimit: 512Mi
{{- end }}

{{- define "inferno.binding" -}}
{{- /* Give the operator's account the rights of a role of the same name and the kind `role`. */ -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .role }}Binding
metadata:
  {{- include "inferno.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .role }}
  name: {{ include "inferno.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "inferno.account" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "inferno.collectors" -}}
{{- /* Where those who collect metrics come from. */ -}}
- namespaceSelector:
    matchLabels:
      metrics: enabled
{{- if .Values.monitoring.enabled }}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .Values.monitoring.namespace }}
{{- end }}
{{- end }}

{{- define "inferno.reading" -}}
- apiGroups: [inferno.platform.ai]
  resources: [accelerators, capacities, models, optimizers, servers, serviceclasses]
  verbs: [get, list, watch]
{{- end }}
