package policy

import (
	"slices"
	"strconv"
	"strings"
)

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Operations is a decision as hand-made operations of a JSON patch (RFC 6902).
func Operations(pod *Pod, decision *Decision) []Operation {
	var made []Operation
	for index := range decision.Grants {
		grant := &decision.Grants[index]
		container := &pod.Containers[grant.Index]
		made = amend(made, container.Path+"/resources/limits", container.Limits, grant)
		if _, there := container.Requests[PlainGPU]; there {
			made = amend(made, container.Path+"/resources/requests", container.Requests, grant)
		}
		for _, position := range slices.Backward(grant.Removed) {
			made = append(made, Operation{
				Op: "remove", Path: container.Path + "/env/" + strconv.Itoa(position),
			})
		}
	}
	made = placed(made, pod, decision.Profile)
	if pod.Annotations == nil {
		record := map[string]string{GrantsKey: decision.Record}
		return append(made, Operation{Op: "add", Path: "/metadata/annotations", Value: record})
	}
	return append(made, Operation{
		Op: "add", Path: "/metadata/annotations/" + escape(GrantsKey), Value: decision.Record,
	})
}

func amend(made []Operation, holder string, current map[string]string, grant *Grant) []Operation {
	if _, there := current[PlainGPU]; there {
		made = append(made, Operation{Op: "remove", Path: holder + "/" + escape(PlainGPU)})
	}
	return append(made,
		Operation{Op: "add", Path: holder + "/" + escape(grant.Resource), Value: "1"},
		Operation{Op: "add", Path: holder + "/" + escape(MilliGPU), Value: grant.Milli},
	)
}

func placed(made []Operation, pod *Pod, profile *Profile) []Operation {
	if pod.NodeSelector == nil {
		selector := map[string]string{}
		for _, pair := range profile.NodeSelector {
			selector[pair[0]] = pair[1]
		}
		made = append(made, Operation{Op: "add", Path: "/spec/nodeSelector", Value: selector})
	} else {
		for _, pair := range profile.NodeSelector {
			if _, there := pod.NodeSelector[pair[0]]; !there {
				made = append(made, Operation{
					Op: "add", Path: "/spec/nodeSelector/" + escape(pair[0]), Value: pair[1],
				})
			}
		}
	}
	if pod.Tolerations == nil {
		return append(made, Operation{
			Op: "add", Path: "/spec/tolerations", Value: profile.Tolerations,
		})
	}
	for _, toleration := range profile.Tolerations {
		if !slices.Contains(pod.Tolerations, toleration) {
			made = append(made, Operation{Op: "add", Path: "/spec/tolerations/-", Value: toleration})
		}
	}
	return made
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(key string) string { return escaper.Replace(key) }
