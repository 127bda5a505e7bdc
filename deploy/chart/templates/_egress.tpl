{{/* What our pods talk to: the API server, by its Service and by its endpoints. No DNS is needed. */}}
{{- define "gpu-sharing.egress" -}}
- ports:
    - {port: 443, protocol: TCP}
    - {port: {{ .Values.networkPolicy.apiServerPort }}, protocol: TCP}
{{- end }}
