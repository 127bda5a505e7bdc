{{/*
Names. They are fixed: there is one installation in a cluster (webhook configuration, CRDs and the
agents' sockets have one owner), and Helm refuses objects that another release owns.
*/}}

{{/* The Service that API servers call, and the Deployment behind it. */}}
{{- define "gpu-sharing.webhook" -}}
gpu-sharing-webhook
{{- end }}

{{- define "gpu-sharing.agent" -}}
gpu-sharing-agent
{{- end }}

{{- define "gpu-sharing.controller" -}}
gpu-sharing-controller
{{- end }}

{{/* The webhook configuration; the rotation of certificates looks for this name. */}}
{{- define "gpu-sharing.configuration" -}}
gpu-sharing
{{- end }}

{{/* The Secret that replicas of the webhook share, with certs.provider: builtin. */}}
{{- define "gpu-sharing.certsSecret" -}}
gpu-sharing-webhook-certs
{{- end }}

{{/* The Secret that is mounted, with the other providers. */}}
{{- define "gpu-sharing.tlsSecret" -}}
{{- if eq .Values.certs.provider "files" }}{{ .Values.certs.files.secretName }}{{ else }}gpu-sharing-webhook-tls{{ end }}
{{- end }}

{{/* The names under which API servers and people call the webhook, a YAML list. */}}
{{- define "gpu-sharing.serviceNames" -}}
- {{ include "gpu-sharing.webhook" . }}.{{ .Release.Namespace }}.svc
- {{ include "gpu-sharing.webhook" . }}
- {{ include "gpu-sharing.webhook" . }}.{{ .Release.Namespace }}
- {{ include "gpu-sharing.webhook" . }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end }}
