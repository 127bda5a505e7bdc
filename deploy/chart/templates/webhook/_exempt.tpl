{{/* Namespaces that are never reviewed: by name, which tenants cannot set. */}}
{{- define "gpu-sharing.notExempt" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values:
    {{- range concat (list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) .Values.exemptNamespaces | uniq }}
    - {{ . }}
    {{- end }}
{{- end }}
