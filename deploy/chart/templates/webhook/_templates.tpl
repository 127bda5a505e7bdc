{{/* Rules for the kinds of others whose pod templates are looked at, a YAML list. */}}
{{- define "gpu-sharing.templateRules" -}}
{{- $known := dict
  "argo" (dict "argoproj.io" (list "rollouts"))
  "jobset" (dict "jobset.x-k8s.io" (list "jobsets"))
  "kubeflow" (dict "kubeflow.org" (list "pytorchjobs" "tfjobs" "mpijobs" "xgboostjobs" "paddlejobs" "jaxjobs"))
  "leaderworkerset" (dict "leaderworkerset.x-k8s.io" (list "leaderworkersets"))
  "ray" (dict "ray.io" (list "rayclusters" "rayjobs" "rayservices"))
}}
{{- $all := dict }}
{{- range .Values.webhook.templates.known }}
{{- range $group, $resources := index $known . }}
{{- $_ := set $all $group $resources }}
{{- end }}
{{- end }}
{{- range .Values.webhook.templates.others }}
{{- $_ := set $all .group (append (default list (get $all .group)) .resource | uniq) }}
{{- end }}
{{- range $group, $resources := $all }}
- apiGroups: [{{ $group }}]
  apiVersions: ["*"]
  resources: [{{ join ", " $resources }}]
  operations: [CREATE, UPDATE]
  scope: Namespaced
{{- end }}
{{- end }}
