{{/* How the webhook comes by its certificate, as arguments: the one place that knows the flags. */}}
{{- define "gpu-sharing.certificateArguments" -}}
{{- if eq .Values.certs.provider "builtin" -}}
- --certs-secret={{ .Release.Namespace }}/{{ include "gpu-sharing.certsSecret" . }}
- --service={{ .Release.Namespace }}/{{ include "gpu-sharing.webhook" . }}
{{- else -}}
- --cert=/etc/gpu-sharing/tls/tls.crt
- --key=/etc/gpu-sharing/tls/tls.key
{{- end -}}
{{- end }}
