{{/* The node's folders that the agent works in, each with its reason. */}}
{{- define "gpu-sharing.agentVolumes" -}}
# Our sockets, the kubelet's Register socket, and its checkpoint of what it handed out.
- name: device-plugins
  hostPath: {path: {{ .Values.agent.kubeletDir }}/device-plugins, type: Directory}
# PodResources List: who holds which share. Connecting needs no write access.
- name: pod-resources
  hostPath: {path: {{ .Values.agent.kubeletDir }}/pod-resources, type: Directory}
# Sockets of DRA drivers: NVIDIA's would hand out the same GPUs, so it has to be seen.
- name: dra-plugins
  hostPath: {path: {{ .Values.agent.kubeletDir }}/plugins, type: DirectoryOrCreate}
# CDI files, which the container runtime reads when it makes a container.
- name: cdi
  hostPath: {path: {{ .Values.agent.cdiDir }}, type: DirectoryOrCreate}
# Journal of plans under way, the last wanted layouts; has to outlive reboots.
- name: state
  hostPath: {path: {{ .Values.agent.stateDir }}, type: DirectoryOrCreate}
# Pipes of MPS daemons; pods get them mounted from the node at the same path.
- name: mps
  hostPath: {path: {{ .Values.agent.mpsDir }}, type: DirectoryOrCreate}
{{- if include "gpu-sharing.agentFiles" . }}
# What the chart's values say of health and MIG; a change replaces the pods.
- name: files
  configMap: {name: {{ include "gpu-sharing.agent" . }}}
{{- end }}
{{- $nodeFiles := include "gpu-sharing.agentNodeFiles" . | fromYaml }}
{{- with get $nodeFiles "toolkit-config" }}
# Whether NVIDIA's runtime ignores pods' own variables, without which the strategy would not be safe.
- name: toolkit-config
  hostPath: {path: {{ . }}, type: File}
{{- end }}
{{- with get $nodeFiles "driver-spec" }}
# What containers need of the driver; it lies outside of the folder of CDI files that is ours too.
- name: driver-spec
  hostPath: {path: {{ . }}, type: File}
{{- end }}
{{- with .Values.agent.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
