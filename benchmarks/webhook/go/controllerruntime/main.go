// Controllerruntime is an admission webhook as most Go projects write it: controller-runtime's
// server, the pod decoded into its type. The patch is the difference of two whole pods
// (--patch=diff, the usual idiom) or hand-made operations (--patch=hand).
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"gpu.sharing/benchmarks/webhook/internal/policy"
)

type mutator struct {
	decoder  admission.Decoder
	policies *policy.Policies
	byHand   bool
}

// Handle answers one review.
func (m *mutator) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := m.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	seen := view(pod, request.Namespace)
	decision := m.policies.Decide(seen)
	made := m.respond(request, pod, seen, &decision)
	made.Warnings, made.AuditAnnotations = decision.Warnings, decision.Audit
	return made
}

func (m *mutator) respond(
	request admission.Request, pod *corev1.Pod, seen *policy.Pod, decision *policy.Decision,
) admission.Response {
	if decision.Denied != "" {
		response := admission.Denied("")
		response.Result.Message = decision.Denied
		return response
	}
	if len(decision.Grants) == 0 {
		return admission.Allowed("")
	}
	if m.byHand {
		operations := policy.Operations(seen, decision)
		patch := make([]jsonpatch.JsonPatchOperation, len(operations))
		for index, one := range operations {
			patch[index] = jsonpatch.NewOperation(one.Op, one.Path, one.Value)
		}
		return admission.Patched("", patch...)
	}
	apply(pod, decision)
	changed, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}

func apply(pod *corev1.Pod, decision *policy.Decision) {
	for index := range decision.Grants {
		grant := &decision.Grants[index]
		container := &pod.Spec.Containers[grant.Index]
		for _, amounts := range []corev1.ResourceList{
			container.Resources.Limits, container.Resources.Requests,
		} {
			if _, there := amounts[policy.PlainGPU]; there {
				delete(amounts, policy.PlainGPU)
				amounts[corev1.ResourceName(grant.Resource)] = resource.MustParse("1")
				amounts[policy.MilliGPU] = resource.MustParse(grant.Milli)
			}
		}
		for _, position := range slices.Backward(grant.Removed) {
			container.Env = slices.Delete(container.Env, position, position+1)
		}
	}
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	for _, pair := range decision.Profile.NodeSelector {
		if _, there := pod.Spec.NodeSelector[pair[0]]; !there {
			pod.Spec.NodeSelector[pair[0]] = pair[1]
		}
	}
	for _, wanted := range decision.Profile.Tolerations {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key:      wanted.Key,
			Operator: corev1.TolerationOperator(wanted.Operator),
			Value:    wanted.Value,
			Effect:   corev1.TaintEffect(wanted.Effect),
		})
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, policy.GrantsKey, decision.Record)
}

func view(pod *corev1.Pod, namespace string) *policy.Pod {
	seen := &policy.Pod{
		Namespace:    namespace,
		Name:         pod.Name,
		GenerateName: pod.GenerateName,
		Annotations:  pod.Annotations,
		Containers:   make([]policy.Container, len(pod.Spec.Containers)),
		NodeName:     pod.Spec.NodeName,
		HostPID:      pod.Spec.HostPID,
		HostIPC:      pod.Spec.HostIPC,
		NodeSelector: pod.Spec.NodeSelector,
	}
	for index := range pod.Spec.Volumes {
		if host := pod.Spec.Volumes[index].HostPath; host != nil {
			seen.HostPaths = append(seen.HostPaths, host.Path)
		}
	}
	for _, one := range pod.Spec.Tolerations {
		seen.Tolerations = append(seen.Tolerations, policy.Toleration{
			Key: one.Key, Operator: string(one.Operator), Value: one.Value, Effect: string(one.Effect),
		})
	}
	for index := range pod.Spec.Containers {
		from, to := &pod.Spec.Containers[index], &seen.Containers[index]
		to.Name = from.Name
		to.Field = "spec.containers[" + strconv.Itoa(index) + "]"
		to.Path = "/spec/containers/" + strconv.Itoa(index)
		to.Limits, to.Requests = amounts(from.Resources.Limits), amounts(from.Resources.Requests)
		to.Env = make([]string, len(from.Env))
		for position := range from.Env {
			to.Env[position] = from.Env[position].Name
		}
		if security := from.SecurityContext; security != nil {
			to.Privileged = security.Privileged != nil && *security.Privileged
			if security.Capabilities != nil {
				for _, capability := range security.Capabilities.Add {
					to.Capabilities = append(to.Capabilities, string(capability))
				}
			}
		}
		for position := range from.VolumeMounts {
			to.Mounts = append(to.Mounts, from.VolumeMounts[position].MountPath)
		}
	}
	return seen
}

// Only GPUs are looked at; the texts of all others need not be made.
func amounts(list corev1.ResourceList) map[string]string {
	amount, there := list[policy.PlainGPU]
	if !there {
		return nil
	}
	return map[string]string{policy.PlainGPU: amount.String()}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func main() {
	certificate := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "its key, PEM, in the same folder")
	patch := flag.String("patch", "diff", "diff or hand")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		log.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{
		Host:     "127.0.0.1",
		Port:     port,
		CertDir:  filepath.Dir(*certificate),
		CertName: filepath.Base(*certificate),
		KeyName:  filepath.Base(*key),
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.NextProtos = []string{"http/1.1"}
		}},
	})
	server.Register("/mutate", &webhook.Admission{Handler: &mutator{
		decoder:  admission.NewDecoder(scheme),
		policies: policy.World(),
		byHand:   *patch == "hand",
	}})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go announce(ctx, server, port)
	if err := server.Start(ctx); err != nil {
		log.Fatal(err)
	}
}

func announce(ctx context.Context, server webhook.Server, port int) {
	started := server.StartedChecker()
	for started(nil) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	fmt.Printf("ready: https://127.0.0.1:%d/mutate\n", port)
}
