{{/*
Metadata of a pod template; takes a list of the root, the program, its values, and of what it reads
from a ConfigMap when it starts: pods are replaced when that changes.
*/}}
{{- define "gpu-sharing.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $program := index . 1 -}}
{{- $values := index . 2 -}}
labels:
  {{- include "gpu-sharing.programLabels" (list $root $program) | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $files := index . 3 -}}
{{- $annotations := $values.podAnnotations }}
{{- if $files }}
{{- $annotations = merge (dict "checksum/files" (toJson $files | sha256sum)) $annotations }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a program's pods run and as whom; takes the same list. */}}
{{- define "gpu-sharing.podPlace" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
enableServiceLinks: false
priorityClassName: {{ $values.priorityClassName }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How replicas spread; takes the same list. */}}
{{- define "gpu-sharing.spread" -}}
{{- $root := index . 0 -}}
{{- $program := index . 1 -}}
{{- $values := index . 2 -}}
topologySpreadConstraints:
  {{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "gpu-sharing.selector" (list $root $program) | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
  {{- end }}
{{- end }}

{{/* A PodDisruptionBudget; takes the same list, rendered with two replicas or more. */}}
{{- define "gpu-sharing.disruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $program := index . 1 -}}
{{- $values := index . 2 -}}
{{- if and $values.podDisruptionBudget.enabled (gt (int $values.replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: gpu-sharing-{{ $program }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "gpu-sharing.programLabels" (list $root $program) | nindent 4 }}
spec:
  {{- with $values.podDisruptionBudget }}
  {{- if not (kindIs "invalid" .minAvailable) }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ kindIs "invalid" .maxUnavailable | ternary 1 .maxUnavailable }}
  {{- end }}
  {{- end }}
  # A replica that is not ready must not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "gpu-sharing.selector" (list $root $program) | nindent 6 }}
{{- end }}
{{- end }}

{{/* Environment that is chosen for all programs and for one; takes a list of the root and its values. */}}
{{- define "gpu-sharing.chosenEnv" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- if $root.Values.debug }}
- {name: GPU_SHARING_DEBUG, value: "true"}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
