{{- define "inferno.prefix" -}}
{{- /* What the names of all objects begin with. */ -}}
{{ .Values.fullnameOverride | default .Values.nameOverride | default "inferno" }}
{{- end }}

{{- define "inferno.app" -}}
{{- /* Label of the objects of `app`, operator or optimizer, in the context `root`. */ -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default "inferno" }}-{{ .app }}
{{- end }}

{{- define "inferno.labels" -}}
{{ include "inferno.app" . }}
app.kubernetes.io/part-of: inferno
{{- end }}

{{- define "inferno.releaseLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "inferno.name" -}}
{{- /* Name of an object, its own `fullname` or the prefix and its `name`; without a namespace
(`everywhere`), the name also contains the release. */ -}}
{{ .fullname | default (printf "%s-%s" (include "inferno.prefix" .root) .name) }}{{ if .everywhere }}:{{ .root.Release.Namespace }}:{{ .root.Release.Name }}{{ end }}
{{- end }}

{{- define "inferno.metadata" -}}
{{- /* Metadata of the object `name` of `app`, in the context `root`, with additional `labels`;
`everywhere`: the object has no namespace. */ -}}
name: {{ include "inferno.name" . }}
{{- if not .everywhere }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- $own := merge (include "inferno.labels" . | fromYaml) (include "inferno.releaseLabels" .root | fromYaml) }}
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
{{ .Values.serviceAccount.name | default (printf "%s-operator" (include "inferno.prefix" .)) }}
{{- end }}

{{- define "inferno.podMetadata" -}}
{{- /* Metadata of pods of `app`; their own labels take precedence over those of the values. */ -}}
labels: {{ merge (include "inferno.labels" . | fromYaml) .root.Values.podLabels | toYaml | nindent 2 }}
{{- with .root.Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "inferno.podSettings" -}}
{{- /* Common spec of pods of `app`; `secrets`: the pods read Secrets; `single`: there is one. */ -}}
enableServiceLinks: false # they would inject unrelated INFERNO_* variables
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- if .root.Values.fixedUser }}
{{- $_ := mergeOverwrite $context (dict "runAsUser" 65532 "runAsGroup" 65532) }}
{{- if .secrets }}{{ $_ := set $context "fsGroup" 65532 }}{{ end }}
{{- end }}
{{- $own := deepCopy (.root.Values.podSecurityContext | default dict) }}
securityContext: {{ toYaml (mergeOverwrite $context $own) | nindent 2 }}
{{- with .root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- else }}
{{- if not .single }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "inferno.app" . | nindent 14 }}
{{- end }}
{{- end }}
{{- with .root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $counted := dict "labelSelector" (dict "matchLabels" (include "inferno.app" $ | fromYaml)) }}
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
{{- /* Volumes with the token, and with the `keys` of the certificate Secret. */ -}}
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

{{- define "inferno.prometheusVariables" -}}
{{- /* Variables with which the operator finds Prometheus, and the files for it. */ -}}
{{- $values := .Values.prometheus }}
{{- $folder := "/var/run/secrets/inferno/prometheus" }}
{{- $params := list }}
{{- range $name, $value := $values.params }}
{{- $params = append $params (printf "%s=%s" (urlquery $name) (urlquery $value)) }}
{{- end -}}
- name: INFERNO_PROMETHEUS_URL
  value: {{ $values.url | quote }}
{{- if $values.tokenSecret }}
- name: INFERNO_PROMETHEUS_TOKEN_FILE
  value: {{ $folder }}/token
{{- else if $values.serviceAccountToken }}
- name: INFERNO_PROMETHEUS_TOKEN_FILE
  value: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}
{{- if $values.user }}
- name: INFERNO_PROMETHEUS_USER
  value: {{ $values.user | quote }}
- name: INFERNO_PROMETHEUS_PASSWORD_FILE
  value: {{ $folder }}/password
{{- end }}
{{- if $values.headersSecret }}
- name: INFERNO_PROMETHEUS_HEADERS_FILE
  value: {{ $folder }}/headers
{{- end }}
{{- if $values.tlsSecret }}
- name: INFERNO_PROMETHEUS_CERT
  value: {{ $folder }}/tls.crt
- name: INFERNO_PROMETHEUS_KEY
  value: {{ $folder }}/tls.key
{{- end }}
{{- if $values.caConfigMap }}
- name: INFERNO_PROMETHEUS_CA
  value: {{ $folder }}/ca.crt
{{- end }}
{{- with $params }}
- name: INFERNO_PROMETHEUS_PARAMS
  value: {{ join "&" . | quote }}
{{- end }}
- name: INFERNO_PROMETHEUS_TIMEOUT
  value: {{ $values.timeout | quote }}
- name: INFERNO_MEASURE_INTERVAL
  value: {{ $values.interval | quote }}
{{- if $values.sourcesConfigMap }}
- name: INFERNO_MEASURE_SOURCES
  value: {{ $folder }}/sources.yaml
{{- end }}
{{- end }}

{{- define "inferno.variables" -}}
{{- /* Variables of the operator that follow from other values than `environment` and `extraEnv`. */ -}}
{{- if .Values.namespaced }}
- name: INFERNO_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}
{{- if ne .Values.modelBooster "off" }}
- name: INFERNO_MODEL_BOOSTER
  value: {{ .Values.modelBooster }}
{{- end }}
{{- if .Values.remote.enabled }}
- name: INFERNO_OPTIMIZER
  value: remote
- name: INFERNO_HOST
  value: {{ include "inferno.name" (dict "root" . "name" "optimizer") }}
- name: INFERNO_PORT
  value: "8080"
- name: INFERNO_TLS_CA
  value: /var/run/secrets/inferno/tls/ca.crt
- name: INFERNO_TOKEN_FILE
  value: /var/run/secrets/inferno/token/token
{{- end }}
{{- with .Values.remote.host }}
- name: INFERNO_HOST
  value: {{ . | quote }}
- name: INFERNO_PORT
  value: {{ $.Values.remote.port | quote }}
{{- end }}
{{- if .Values.prometheus.url }}
{{- include "inferno.prometheusVariables" . | nindent 0 }}
{{- end }}
{{- if .Values.publish.tokenSecret }}
- name: INFERNO_PUBLISH_TOKEN_FILE
  value: /var/run/secrets/inferno/publish{{ if not .Values.publish.byNamespace }}/token{{ end }}
{{- end }}
{{- if .Values.metrics.tokenSecret }}
- name: INFERNO_METRICS_TOKEN_FILE
  value: /var/run/secrets/inferno/metrics/token
{{- end }}
{{- if .Values.publish.wvaMetrics }}
- name: INFERNO_WVA_METRICS
  value: "true"
{{- end }}
- name: INFERNO_LEADER_ELECTION
  value: "true"
- name: INFERNO_STATELESS
  value: {{ .Values.stateless | quote }}
{{- end }}

{{- define "inferno.prometheusFiles" -}}
{{- /* Sources of the volume with the credentials for Prometheus, "" without any. */ -}}
{{- $values := .Values.prometheus }}
{{- if $values.url }}
{{- with $values.tokenSecret }}
- secret: {name: {{ . }}, items: [{key: token, path: token}]}
{{- end }}
{{- with $values.passwordSecret }}
- secret: {name: {{ . }}, items: [{key: password, path: password}]}
{{- end }}
{{- with $values.headersSecret }}
- secret: {name: {{ . }}, items: [{key: headers, path: headers}]}
{{- end }}
{{- with $values.tlsSecret }}
- secret: {name: {{ . }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
{{- end }}
{{- with $values.caConfigMap }}
- configMap: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with $values.sourcesConfigMap }}
- configMap: {name: {{ . }}, items: [{key: sources.yaml, path: sources.yaml}]}
{{- end }}
{{- end }}
{{- end }}

{{- define "inferno.temporaryVolume" -}}
- name: temporary # files of the fallback solver
  emptyDir:
    sizeLimit: 512Mi
{{- end }}

{{- define "inferno.binding" -}}
{{- /* Bind the operator's ServiceAccount to the role of the same name and the kind `role`. */ -}}
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
{{- /* Namespaces from which Prometheus has access. */ -}}
- namespaceSelector:
    matchLabels:
      metrics: enabled
{{- if .Values.monitoring.enabled }}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .Values.monitoring.namespace }}
{{- end }}
{{- end }}

{{- define "inferno.egress" -}}
{{- /* Connections to the API server, and to DNS. */ -}}
# The API server, at its usual ports: no selector can select it.
- ports:
    - port: 443
    - port: 6443
- to:
    - namespaceSelector: {}
      podSelector:
        matchLabels:
          k8s-app: kube-dns
  ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# NodeLocal DNSCache, at its usual address on each node.
- to:
    - ipBlock:
        cidr: 169.254.20.10/32
  ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# The DNS of OpenShift.
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: openshift-dns
  ports:
    - port: 5353
      protocol: UDP
    - port: 5353
      protocol: TCP
{{- end }}

{{- define "inferno.reading" -}}
- apiGroups: [inferno.platform.ai]
  resources: [accelerators, capacities, models, optimizers, plans, servers, serviceclasses]
  verbs: [get, list, watch]
{{- end }}
