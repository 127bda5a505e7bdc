{{/* A PodMonitor; takes a list of the root and the program. */}}
{{- define "gpu-sharing.podMonitor" -}}
{{- $root := index . 0 -}}
{{- $program := index . 1 -}}
{{- with $root.Values.monitoring.podMonitor -}}
{{- if .enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: gpu-sharing-{{ $program }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "gpu-sharing.programLabels" (list $root $program) | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "gpu-sharing.selector" (list $root $program) | nindent 6 }}
  podMetricsEndpoints:
    - port: health
      path: /metrics
      interval: {{ .interval }}
      scrapeTimeout: {{ .scrapeTimeout }}
{{- end }}
{{- end }}
{{- end }}
