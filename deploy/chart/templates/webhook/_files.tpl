{{/* What a replica reads when it starts, as the data of a ConfigMap; empty for nothing. */}}
{{- define "gpu-sharing.webhookFiles" -}}
{{- with .Values.webhook.templates.others }}
# Where kinds keep their pod templates.
paths.yaml: |
  {{- range . }}
  {{ .kind }}.{{ .group }}: {{ .paths | toJson }}
  {{- end }}
{{- end }}
{{- with .Values.webhook.callers.authorities }}
# Whose certificates callers have to show.
callers.crt: |
  {{- . | trim | nindent 2 }}
{{- end }}
{{- end }}
