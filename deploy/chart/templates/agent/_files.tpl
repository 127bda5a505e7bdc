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

{{/* Single files of the node that the agent reads when it starts, by the names of their volumes. */}}
{{- define "gpu-sharing.agentNodeFiles" -}}
{{- with .Values.agent }}
{{- if and (eq .deviceListStrategy "volume-mounts") (not .trustPodEnvironment) (eq .driver "nvml") }}
toolkit-config: {{ .toolkitConfig }}
{{- end }}
{{- if and .driverCdiSpec (ne (dir .driverCdiSpec) .cdiDir) }}
driver-spec: {{ .driverCdiSpec }}
{{- end }}
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
{{- with .Values.agent }}
{{- if ne .deviceListStrategy "cdi-cri" }}
- --device-list-strategy={{ .deviceListStrategy }}
{{- end }}
{{- if .trustPodEnvironment }}
- --trust-pod-environment
{{- else if and (eq .deviceListStrategy "volume-mounts") (eq .driver "nvml") }}
- --toolkit-config={{ .toolkitConfig }}
{{- end }}
{{- if .driverCdiSpec }}
- --driver-cdi-spec={{ .driverCdiSpec }}
{{- end }}
{{- if ne .devRoot "/" }}
- --dev-root={{ .devRoot }}
{{- end }}
{{- if ne .sharePlacement "pack" }}
- --share-placement={{ .sharePlacement }}
{{- end }}
{{- if ne (int .mpsProtocol) 2 }}
- --mps-protocol={{ .mpsProtocol }}
{{- end }}
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
{{- if .Values.agent.simulated.deviceFiles }}
- --simulate-files
{{- end }}
{{- end }}
{{- end }}
