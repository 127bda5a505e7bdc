// Package policy is the benchmark's policy in Go: what the folder of world.py says, decided the
// way gpu-sharing decides it. It knows the forms that the benchmark's reviews use and no others,
// so it does less than the server that it is compared with, never more.
package policy

import (
	"encoding/json"
	"fmt"
	"math/big"
	"path"
	"strconv"
	"strings"
)

const (
	// PlainGPU is the resource that a share takes the place of.
	PlainGPU = "nvidia.com/gpu"
	// MilliGPU is a share's worth in thousandths of a GPU.
	MilliGPU    = "gpu.sharing/milli-gpu"
	fractionKey = "gpu.sharing/fraction"
	// GrantsKey is the annotation that records what a pod was given.
	GrantsKey = "status.gpu.sharing/grants"
	prefix    = "gpu.sharing/"
)

// Toleration is a toleration in the fields that the policy compares.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// Profile is a SharingProfile in the fields that the benchmark's world uses.
type Profile struct {
	Name         string
	DefaultParts int64
	Parts        []int64 // largest number first, so smallest share first
	NodeSelector [][2]string
	Tolerations  []Toleration
	Accounting   bool
}

// Policies says which profile governs a namespace.
type Policies struct {
	namespaces map[string]string
	profiles   map[string]*Profile
}

// World is the policy of ten teams, as world.py writes it.
func World() *Policies {
	made := &Policies{namespaces: map[string]string{}, profiles: map[string]*Profile{}}
	for index := range 10 {
		name := "profile-" + strconv.Itoa(index)
		made.namespaces["team-"+strconv.Itoa(index)] = name
		made.profiles[name] = &Profile{
			Name:         name,
			DefaultParts: 4,
			Parts:        []int64{8, 4, 2},
			NodeSelector: [][2]string{{"pool", "research"}},
			Tolerations: []Toleration{
				{Key: PlainGPU, Operator: "Exists", Effect: "NoSchedule"},
			},
			Accounting: true,
		}
	}
	return made
}

// Container is one container, as much of it as a decision reads.
type Container struct {
	Name         string
	Field        string            // spec.containers[0]
	Path         string            // /spec/containers/0
	Limits       map[string]string // nil where absent
	Requests     map[string]string
	Env          []string // names
	Privileged   bool
	Capabilities []string // added ones
	Mounts       []string
}

// Pod is one pod, as much of it as a decision reads.
type Pod struct {
	Namespace    string
	Name         string
	GenerateName string
	Annotations  map[string]string // nil where absent
	Containers   []Container
	NodeName     string
	HostPID      bool
	HostIPC      bool
	HostPaths    []string
	NodeSelector map[string]string
	Tolerations  []Toleration // nil where absent
}

// Grant is one container's share.
type Grant struct {
	Container string            `json:"container"`
	Resource  string            `json:"resource"`
	Count     int               `json:"count"`
	Request   string            `json:"request"`
	Resources map[string]string `json:"resources"`
	Profile   string            `json:"profile"`
	Reason    string            `json:"reason"`

	Index   int    `json:"-"` // of the container
	Milli   string `json:"-"`
	Removed []int  `json:"-"` // indices of env entries that the share decides
}

// Decision is what becomes of a pod.
type Decision struct {
	Denied   string // message; empty where allowed
	Profile  *Profile
	Grants   []Grant
	Record   string // the grants as JSON
	Warnings []string
	Audit    map[string]string
}

// Decide says what becomes of a pod.
func (p *Policies) Decide(pod *Pod) Decision {
	profile := p.profiles[p.namespaces[pod.Namespace]]
	if profile == nil || !asks(pod) {
		return Decision{}
	}
	if field, wrong := openings(pod, profile); wrong != "" {
		return Decision{
			Denied: fmt.Sprintf("pod %s/%s: %s: %s; expected a pod with a share to hold no more "+
				"than its share; remove it, or run it in a pod without a GPU; for example: "+
				"securityContext: {privileged: false}", pod.Namespace, shownName(pod), field, wrong),
			Audit: map[string]string{"denied": field},
		}
	}
	decision := Decision{Profile: profile}
	var given []string
	for index := range pod.Containers {
		if _, asked := pod.Containers[index].Limits[PlainGPU]; !asked {
			continue
		}
		grant, err := give(pod, index, profile)
		if err != nil {
			return Decision{Denied: fmt.Sprintf("pod %s/%s: %v", pod.Namespace, shownName(pod), err)}
		}
		decision.Grants = append(decision.Grants, grant)
		decision.Warnings = append(decision.Warnings, words(&pod.Containers[index], &grant)...)
		given = append(given, grant.Container+"="+grant.Resource)
	}
	record, err := json.Marshal(decision.Grants)
	if err != nil {
		return Decision{Denied: err.Error()}
	}
	decision.Record = string(record)
	decision.Audit = map[string]string{"profile": profile.Name, "grants": strings.Join(given, ", ")}
	return decision
}

func asks(pod *Pod) bool {
	for index := range pod.Containers {
		if _, asked := pod.Containers[index].Limits[PlainGPU]; asked {
			return true
		}
	}
	for key := range pod.Annotations {
		if strings.HasPrefix(key, prefix) || strings.Contains(key, "."+prefix) {
			return true
		}
	}
	return false
}

func give(pod *Pod, index int, profile *Profile) (Grant, error) {
	container := &pod.Containers[index]
	amount := container.Limits[PlainGPU]
	if requested, there := container.Requests[PlainGPU]; there && requested != amount {
		return Grant{}, fmt.Errorf("container %s: requests differ from limits", container.Name)
	}
	if amount != "1" {
		return Grant{}, fmt.Errorf("container %s: one GPU at most", container.Name)
	}
	grant := Grant{
		Container: container.Name,
		Count:     1,
		Request:   PlainGPU + ": " + amount,
		Resources: map[string]string{PlainGPU: amount},
		Profile:   profile.Name,
		Index:     index,
	}
	wanted := big.NewRat(1, profile.DefaultParts)
	grant.Reason = fmt.Sprintf("default 1of%d of profile %s", profile.DefaultParts, profile.Name)
	key := container.Name + "." + fractionKey
	text, own := pod.Annotations[key]
	if !own {
		key = fractionKey
		text, own = pod.Annotations[key]
	}
	if own {
		if _, fine := wanted.SetString(text); !fine {
			return Grant{}, fmt.Errorf("annotation %s: %q is no fraction", key, text)
		}
		grant.Request = key + ": " + text
		grant.Reason = wanted.RatString() + " of a GPU"
	}
	parts, found := smallest(profile, wanted)
	if !found {
		return Grant{}, fmt.Errorf("container %s: no size is that large", container.Name)
	}
	grant.Resource = "gpu.sharing/mps-1of" + strconv.FormatInt(parts, 10)
	grant.Milli = strconv.FormatInt((1000+parts-1)/parts, 10)
	for position, name := range container.Env {
		if decidedByShare(name) {
			grant.Removed = append(grant.Removed, position)
		}
	}
	return grant, nil
}

func smallest(profile *Profile, wanted *big.Rat) (int64, bool) {
	for _, parts := range profile.Parts {
		if big.NewRat(1, parts).Cmp(wanted) >= 0 {
			return parts, true
		}
	}
	return 0, false
}

func decidedByShare(name string) bool {
	switch name {
	case "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
		"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES":
		return true
	}
	return false
}

func words(container *Container, grant *Grant) []string {
	said := []string{fmt.Sprintf(
		"%s: %s -> %s (%s)", grant.Container, grant.Request, grant.Resource, grant.Reason,
	)}
	if len(grant.Removed) > 0 {
		said = append(said, fmt.Sprintf("%s: %s removed from env: the share decides it",
			grant.Container, container.Env[grant.Removed[0]]))
	}
	return said
}

func openings(pod *Pod, profile *Profile) (string, string) {
	beside := fmt.Sprintf("beside a share of one (profile %s, privileged: deny)", profile.Name)
	for key := range pod.Annotations {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			return "metadata.annotations[" + key + "]", "it injects devices past the device plugin"
		}
	}
	if pod.NodeName != "" {
		return "spec.nodeName", "it bypasses the scheduler, which counts shares"
	}
	for index := range pod.Containers {
		container := &pod.Containers[index]
		where := "container " + container.Name + ": " + container.Field
		for _, mount := range container.Mounts {
			if below(mount, "/var/run/nvidia-container-devices", "/run/nvidia-container-devices") {
				return where + ".volumeMounts", "it chooses GPUs past the device plugin"
			}
		}
		if container.Privileged {
			return where + ".securityContext.privileged",
				"'true' opens all GPUs of the node, " + beside
		}
		for _, capability := range container.Capabilities {
			switch strings.TrimPrefix(capability, "CAP_") {
			case "ALL", "BPF", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO":
				return where + ".securityContext.capabilities.add",
					"'" + capability + "' opens all GPUs of the node, " + beside
			}
		}
	}
	if pod.HostPID || pod.HostIPC {
		return "spec", "the host's processes open all GPUs of the node, " + beside
	}
	for _, host := range pod.HostPaths {
		if below(host, "/dev", "/proc", "/run", "/var/run", "/var/lib/kubelet", "/etc/cdi") {
			return "spec.volumes", "'" + host + "' opens all GPUs of the node, " + beside
		}
	}
	return "", ""
}

func below(given string, folders ...string) bool {
	clean := path.Clean(given)
	for _, folder := range folders {
		if clean == folder || strings.HasPrefix(clean, folder+"/") {
			return true
		}
	}
	return false
}

func shownName(pod *Pod) string {
	if pod.Name != "" {
		return pod.Name
	}
	return pod.GenerateName + "*"
}
