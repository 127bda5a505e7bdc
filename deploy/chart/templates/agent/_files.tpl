{{/* What the agent reads when it starts, as the data of a ConfigMap; empty for nothing. */}}
{{- define "gpu-sharing.agentFiles" -}}
{{- with .Values.agent.healthPolicy }}
health.toml: |
  {{- . | trim | nindent 2 }}
{{- end }}
{{- with .Values.agent.migConfigs }}
mig-configs.yaml: |
  {{- . | trim | nindent 2 }}
{{- end }}
{{- end }}

{{/* Arguments that not every agent gets: those files, simulated GPUs, choices. */}}
{{- define "gpu-sharing.agentOptions" -}}
{{- if .Values.agent.healthPolicy }}
- --health-policy=/etc/gpu-sharing/health.toml
{{- end }}
{{- if .Values.agent.migConfigs }}
- --honour-mig-config-label=/etc/gpu-sharing/mig-configs.yaml
{{- end }}
{{- if not .Values.agent.shareMetrics }}
- --no-share-metrics
{{- end }}
{{- if .Values.agent.enforceMemory }}
- --enforce-memory
{{- end }}
{{- if ne .Values.agent.driver "nvml" }}
- --simulate={{ .Values.agent.simulated.boards }}
- --simulate-state={{ .Values.agent.stateDir }}/simulated-gpus.json
{{- end }}
{{- end }}
