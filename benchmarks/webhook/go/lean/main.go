// Lean is an admission webhook on net/http alone: structs that hold what a decision reads, and
// hand-made patch operations. It is as much server as the benchmark's reviews need.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"

	"gpu.sharing/benchmarks/webhook/internal/policy"
)

const mostBytes = 7 << 20

type envelope struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID         string `json:"uid"`
	Operation   string `json:"operation"`
	Namespace   string `json:"namespace"`
	SubResource string `json:"subResource"`
	Kind        struct {
		Kind string `json:"kind"`
	} `json:"kind"`
	UserInfo struct {
		Groups []string `json:"groups"`
	} `json:"userInfo"`
	Object *pod `json:"object"`
}

type pod struct {
	Metadata struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers []container `json:"containers"`
		NodeName   string      `json:"nodeName"`
		HostPID    bool        `json:"hostPID"`
		HostIPC    bool        `json:"hostIPC"`
		Volumes    []struct {
			HostPath *struct {
				Path string `json:"path"`
			} `json:"hostPath"`
		} `json:"volumes"`
		NodeSelector map[string]string   `json:"nodeSelector"`
		Tolerations  []policy.Toleration `json:"tolerations"`
	} `json:"spec"`
}

type container struct {
	Name string `json:"name"`
	Env  []struct {
		Name string `json:"name"`
	} `json:"env"`
	Resources struct {
		Limits   map[string]string `json:"limits"`
		Requests map[string]string `json:"requests"`
	} `json:"resources"`
	SecurityContext *struct {
		Privileged   bool `json:"privileged"`
		Capabilities *struct {
			Add []string `json:"add"`
		} `json:"capabilities"`
	} `json:"securityContext"`
	VolumeMounts []struct {
		MountPath string `json:"mountPath"`
	} `json:"volumeMounts"`
}

type status struct {
	Status  string `json:"status"`
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type response struct {
	UID              string            `json:"uid"`
	Allowed          bool              `json:"allowed"`
	Status           *status           `json:"status,omitempty"`
	PatchType        string            `json:"patchType,omitempty"`
	Patch            []byte            `json:"patch,omitempty"`
	Warnings         []string          `json:"warnings,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
}

func view(object *pod, namespace string) *policy.Pod {
	seen := &policy.Pod{
		Namespace:    namespace,
		Name:         object.Metadata.Name,
		GenerateName: object.Metadata.GenerateName,
		Annotations:  object.Metadata.Annotations,
		Containers:   make([]policy.Container, len(object.Spec.Containers)),
		NodeName:     object.Spec.NodeName,
		HostPID:      object.Spec.HostPID,
		HostIPC:      object.Spec.HostIPC,
		NodeSelector: object.Spec.NodeSelector,
		Tolerations:  object.Spec.Tolerations,
	}
	for _, volume := range object.Spec.Volumes {
		if volume.HostPath != nil {
			seen.HostPaths = append(seen.HostPaths, volume.HostPath.Path)
		}
	}
	for index := range object.Spec.Containers {
		from, to := &object.Spec.Containers[index], &seen.Containers[index]
		to.Name = from.Name
		to.Field = "spec.containers[" + strconv.Itoa(index) + "]"
		to.Path = "/spec/containers/" + strconv.Itoa(index)
		to.Limits, to.Requests = from.Resources.Limits, from.Resources.Requests
		to.Env = make([]string, len(from.Env))
		for position := range from.Env {
			to.Env[position] = from.Env[position].Name
		}
		if security := from.SecurityContext; security != nil {
			to.Privileged = security.Privileged
			if security.Capabilities != nil {
				to.Capabilities = security.Capabilities.Add
			}
		}
		for _, mount := range from.VolumeMounts {
			to.Mounts = append(to.Mounts, mount.MountPath)
		}
	}
	return seen
}

func answer(asked *request, policies *policy.Policies) (*response, error) {
	made := &response{UID: asked.UID, Allowed: true}
	if asked.Object == nil || asked.Kind.Kind != "Pod" || asked.Operation != "CREATE" ||
		asked.SubResource != "" {
		return made, nil
	}
	seen := view(asked.Object, asked.Namespace)
	decision := policies.Decide(seen)
	made.Warnings, made.AuditAnnotations = decision.Warnings, decision.Audit
	if decision.Denied != "" {
		made.Allowed = false
		made.Status = &status{
			Status: "Failure", Code: http.StatusForbidden, Reason: "Forbidden",
			Message: decision.Denied,
		}
		return made, nil
	}
	if len(decision.Grants) > 0 {
		patch, err := json.Marshal(policy.Operations(seen, &decision))
		if err != nil {
			return nil, err
		}
		made.PatchType, made.Patch = "JSONPatch", patch
	}
	return made, nil
}

func serve(policies *policy.Policies) http.HandlerFunc {
	return func(writer http.ResponseWriter, call *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(writer, call.Body, mostBytes))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		var review envelope
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
			http.Error(writer, "the body is no AdmissionReview", http.StatusBadRequest)
			return
		}
		made, err := answer(review.Request, policies)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		encoded, err := json.Marshal(envelope{
			APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview", Response: made,
		})
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		if _, err := writer.Write(encoded); err != nil {
			log.Print(err)
		}
	}
}

func main() {
	certificate := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "its key, PEM")
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mutate", serve(policy.World()))
	server := &http.Server{
		Handler:      mux,
		TLSConfig:    &tls.Config{MinVersion: tls.VersionTLS12},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	fmt.Printf("ready: https://%s/mutate\n", listener.Addr())
	log.Fatal(server.ServeTLS(listener, *certificate, *key))
}
