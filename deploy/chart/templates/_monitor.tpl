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
      relabelings:
        # What a metric of an agent is about, besides its pod.
        - {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
        {{- with .relabelings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}
