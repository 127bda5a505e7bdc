{{/*
What the API server asks before it calls us, in CEL. Optional access throughout: they cannot fail.
The same texts are in webhook/registration.py; a test keeps both alike.
*/}}

{{/* Who asks is no kubelet. */}}
{{- define "gpu-sharing.notAKubelet" -}}
!("system:nodes" in request.?userInfo.?groups.orValue([]))
{{- end }}

{{/* Whether a pod or template names a GPU resource or one of our keys; takes the CEL name of it. */}}
{{- define "gpu-sharing.namesAGpu" -}}
{{ . }}.?metadata.?annotations.orValue({}).exists(k, k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/") || k in ["gpu-fraction", "gpu-memory"] || k.startsWith("nvidia.cdi.k8s.io/")) || ({{ . }}.?spec.?containers.orValue([]) + {{ . }}.?spec.?initContainers.orValue([])).exists(c, [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(m, m.exists(k, k.startsWith("nvidia.com/gpu") || k.startsWith("nvidia.com/mig-") || k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/") || k.startsWith("aliyun.com/gpu-") || k.startsWith("volcano.sh/vgpu-"))))
{{- end }}

{{/* The same for workloads, whose pods are in templates. */}}
{{- define "gpu-sharing.templatesNameAGpu" -}}
[object.?spec.?template, object.?spec.?jobTemplate.?spec.?template].exists(t, t.hasValue() && ({{ include "gpu-sharing.namesAGpu" "t" }}))
{{- end }}

{{/* Everything of an entry but its name, selector, rules and conditions. */}}
{{- define "gpu-sharing.webhookEntry" -}}
admissionReviewVersions: [v1]
clientConfig:
  # No caBundle: whoever keeps the certificates puts it there, and an upgrade must not take it away.
  service:
    namespace: {{ .Release.Namespace }}
    name: {{ include "gpu-sharing.webhook" . }}
    path: /mutate
    port: 443
failurePolicy: {{ .Values.webhook.failurePolicy }}
matchPolicy: Equivalent
reinvocationPolicy: IfNeeded
sideEffects: None
timeoutSeconds: 5
{{- end }}

{{/* Namespaces that are never reviewed: by name, which tenants cannot set. */}}
{{- define "gpu-sharing.notExempt" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values:
    {{- range concat (list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) .Values.exemptNamespaces | uniq }}
    - {{ . }}
    {{- end }}
{{- end }}
