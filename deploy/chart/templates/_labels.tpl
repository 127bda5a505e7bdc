{{/* Labels of everything. */}}
{{- define "gpu-sharing.labels" -}}
app.kubernetes.io/name: gpu-sharing
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of one program's objects; takes a list of the root and the program. */}}
{{- define "gpu-sharing.programLabels" -}}
{{- $root := index . 0 -}}
{{ include "gpu-sharing.labels" $root }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels that select one program's pods; they never change. Takes the same list. */}}
{{- define "gpu-sharing.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: gpu-sharing
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}
