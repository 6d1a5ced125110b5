{{- define "inferno.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: inferno
{{- end }}

{{- define "inferno.releaseLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "inferno.metadata" -}}
{{- /* Of an object of `root` that is called `name` and belongs to `app`; `everywhere`: to no namespace. */ -}}
name: {{ .name }}
{{- if not .everywhere }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "inferno.labels" .app | nindent 2 }}
  {{- include "inferno.releaseLabels" .root | nindent 2 }}
{{- end }}

{{- define "inferno.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "inferno.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
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
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: {{ .app }}
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
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: inferno-operator
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "inferno.reading" -}}
- apiGroups: [inferno.platform.ai]
  resources: [accelerators, capacities, models, optimizers, servers, serviceclasses]
  verbs: [get, list, watch]
{{- end }}
