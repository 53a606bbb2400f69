//go:build cluster && slow

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// Names of the two guests with as many features of pods as fit, and of what the second one must yield to.
const (
	busy    = "fields-busy"
	quiet   = "fields-quiet"
	greater = "fields-greater"
	seat    = "test.nodevirt.io/seat" // a resource of which one node has one
)

// podFields are the rows of docs/pod-fields.md, and how each is seen. A row without a function is checked with
// another one, or by a unit test of package vmspec, since the API server does not know the field yet.
func podFields(w *witness) map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"initContainers": func(t *testing.T) {
			states := field(t, busy, ".status.initContainerStatuses[*].state")
			if !strings.Contains(states, `"reason":"Completed"`) || !strings.Contains(states, `"running"`) {
				t.Errorf("the init container and the sidecar are %s", states)
			}
		},
		"ephemeralContainers": func(t *testing.T) {
			debug := func(name string, args ...string) {
				kubectl(t, slices.Concat([]string{"debug", busy, "--image=" + suite.busybox, "--container=" + name, "--profile=general"},
					args, []string{"--", "sh", "-c", "echo looked around"})...)
			}
			debug("beside")
			wait.Success(t, "the container's word", func(ctx context.Context) error {
				out, err := suite.Kubectl(ctx, "logs", busy, "--container=beside")
				if err == nil && out != "looked around\n" {
					err = fmt.Errorf("log %q", out)
				}
				return err
			})
			debug("inside", "--target=c")
			waitingFor(t, busy, `.status.ephemeralContainerStatuses[?(@.name=="inside")]`, "no processes that another container could share")
		},
		"hostUsers: false": func(t *testing.T) {
			if got := field(t, quiet, ".spec.hostUsers"); got != "false" {
				t.Errorf("hostUsers is %q", got)
			}
			if got := kubectl(t, "exec", quiet, "--container=beside", "--", "cat", "/proc/self/uid_map"); strings.Contains(got, "4294967295") {
				t.Errorf("the sidecar is in the node's user namespace: %s", got)
			}
		},
		"probes": func(t *testing.T) { // of busy: exec, grpc and httpGet; of quiet: tcpSocket
			for _, name := range []string{busy, quiet} {
				if got := field(t, name, `.status.containerStatuses[?(@.name=="c")].started`); got != "true" {
					t.Errorf("%s started: %q", name, got)
				}
			}
		},
		"lifecycle.postStart": func(t *testing.T) {
			if got := said(t, busy, "cat", "/run/started"); got != "by its hook" {
				t.Errorf("postStart wrote %q", got)
			}
			w.asked(t, "/started")
		},
		"lifecycle.preStop":       nil, // when the others have ended
		"lifecycle.stopSignal":    nil,
		"shareProcessNamespace":   nil, // TestASharedProcessNamespaceHoldsNoVM
		"priority and preemption": nil, // when the others have ended
		"seccompProfile, appArmorProfile": func(t *testing.T) {
			refusedField(t, "seccomp", func(_, c object) {
				c["securityContext"] = object{"seccompProfile": object{"type": "Localhost", "localhostProfile": "mine.json"}}
			}, "securityContext.seccompProfile: QEMU has the node's own; use RuntimeDefault")
		},
		"terminationMessagePath": func(t *testing.T) {
			refusedField(t, "message-path", func(_, c object) { c["terminationMessagePath"] = "/run/message" },
				"terminationMessagePath: a guest writes no files of its node")
		},
		"terminationMessagePolicy": func(t *testing.T) {
			pod := vmPod("fields-message", suite.tiny)
			pod["spec"].(object)["restartPolicy"] = "Never"
			container(pod)["terminationMessagePolicy"] = "FallbackToLogsOnError"
			name := ready(t, pod)
			ip := field(t, name, ".status.podIP")
			answer(t, ip)
			_, _ = ask(t.Context(), ip, "/cgi-bin/panic") // the answer may be lost
			wait.Success(t, "the console's end in the message", func(ctx context.Context) error {
				out, err := suite.Kubectl(ctx, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].state.terminated}")
				// The kubelet keeps the last 2 KiB, which are the end of the trace.
				if err == nil && (!strings.Contains(out, "the guest's kernel panicked: ") || !strings.Contains(out, " R15: ") || !strings.Contains(out, "134")) {
					err = fmt.Errorf("its end: %s", out)
				}
				return err
			})
		},
		"env, envFrom": func(t *testing.T) {
			warnedField(t, "env", func(_, c object) { c["env"] = []object{{"name": "A", "value": "b"}} }, "a VM gets no environment variables")
			warnedField(t, "env-from", func(_, c object) { c["envFrom"] = []object{{"secretRef": object{"name": "none"}}} }, "a VM gets no environment variables")
		},
		"command, args, workingDir": func(t *testing.T) {
			refusedField(t, "command", func(_, c object) { c["command"], c["workingDir"] = []string{"sleep"}, "/srv" },
				"command and args: a VM runs what its disk boots", "workingDir: the node starts no program in a guest")
		},
		"stdin, tty": func(t *testing.T) {
			answer(t, field(t, busy, ".status.podIP"))
			start(t, "attach", "-it", busy, "--container=c").Until("echo $((40 + 2))-answer\n", "42-answer")
		},
		"runAsUser, capabilities": func(t *testing.T) {
			if got := said(t, busy, "id", "-u"); got != "0" {
				t.Errorf("the agent's user is %s", got)
			}
		},
		"privileged": func(t *testing.T) {
			refusedField(t, "privileged", func(_, c object) { c["securityContext"] = object{"privileged": true} },
				"securityContext.privileged: a guest gets no rights on its node")
		},
		"readOnlyRootFilesystem": func(t *testing.T) {
			if got := said(t, busy, "cat", "/sys/block/vda/ro"); got != "1" {
				t.Errorf("the disk's ro is %s", got)
			}
		},
		"hostNetwork, hostPID, hostIPC": func(t *testing.T) {
			refusedField(t, "host-network", func(spec, _ object) { spec["hostNetwork"] = true }, "remove hostNetwork")
			refusedField(t, "host-others", func(spec, _ object) { spec["hostPID"], spec["hostIPC"] = true, true },
				"hostPID: a guest does not see processes of its node", "hostIPC: a guest does not share memory with its node")
		},
		"hostPort": func(t *testing.T) {
			if got := answer(t, field(t, busy, ".status.hostIP")+":8099"); got.Hostname != busy {
				t.Errorf("at the node's port answers %+v", got)
			}
		},
		"hostAliases": func(t *testing.T) {
			warnedField(t, "aliases", func(spec, _ object) { spec["hostAliases"] = []object{{"ip": "10.1.2.3", "hostnames": []string{"x"}}} },
				"a VM does not get these; add them to its /etc/hosts")
		},
		"sysctls": func(t *testing.T) {
			warnedField(t, "sysctls", func(spec, _ object) {
				spec["securityContext"] = object{"sysctls": []object{{"name": "net.ipv4.tcp_syncookies", "value": "1"}}}
			}, "a VM has its own kernel")
		},
		"resize in place": func(t *testing.T) {
			kubectl(t, "patch", "pod", busy, "--subresource=resize", "-p", `{"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}}}]}}`)
			assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+busy, `jsonpath={.status.containerStatuses[?(@.name=="c")].resources.limits.cpu}=1500m`))
		},
		"PodDisruptionBudget": func(t *testing.T) {
			made(t, object{
				"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": busy},
				"spec": object{"minAvailable": 1, "selector": object{"matchLabels": object{"app": busy}}},
			})
			assert.NilError(t, suite.WaitFor(t.Context(), "pdb/"+busy, "jsonpath={.status.currentHealthy}=1"))
			out, err := sent(t, object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": busy}},
				"create", "--raw", "/api/v1/namespaces/default/pods/"+busy+"/eviction", "-f", "-")
			if err == nil || !strings.Contains(out, "disruption budget") {
				t.Errorf("evicted: %v: %s", err, out)
			}
		},
	}
}

// TestPodFields: in a VM's pod each feature of pods does what the page says.
func TestPodFields(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	checks := podFields(w)
	if pages, tests := pageRows(t), slices.Sorted(maps.Keys(checks)); !slices.Equal(pages, tests) {
		t.Errorf("the page's rows are\n%q\nthose here\n%q", pages, tests)
	}
	node := strings.Fields(kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))[0]
	kubectl(t, "patch", "node", node, "--subresource=status", "--type=json", "-p",
		`[{"op": "add", "path": "/status/capacity/`+strings.ReplaceAll(seat, "/", "~1")+`", "value": "1"}]`)
	run(t, busyPod(w))
	run(t, quietPod(w))
	for _, name := range []string{busy, quiet} {
		assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=Ready"))
	}
	t.Run("rows", func(t *testing.T) {
		for row, check := range checks {
			if check != nil {
				t.Run(row, func(t *testing.T) {
					t.Parallel()
					check(t)
				})
			}
		}
	})
	t.Run("lifecycle.preStop", func(t *testing.T) {
		kubectl(t, "delete", "pod", busy, "--wait=false")
		w.asked(t, "/stopped")
	})
	t.Run("priority and preemption", func(t *testing.T) {
		made(t, object{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": object{"name": greater}, "value": 1000})
		pod := plainPod(greater, suite.busybox, "sleep", "100000")
		pod["spec"].(object)["priorityClassName"] = greater
		container(pod)["resources"] = object{"limits": object{seat: "1"}}
		ready(t, pod)
		if out, err := suite.Kubectl(t.Context(), "get", "pod", quiet); err == nil {
			t.Errorf("not preempted: %s", out)
		}
	})
}

// busyPod is a VM with an agent, probes, hooks, a port of its node, and containers beside it.
func busyPod(w *witness) object {
	pod := vmPod(busy, suite.agent)
	pod["metadata"].(object)["labels"] = object{"app": busy}
	pod["metadata"].(object)["annotations"] = object{"nodevirt.io/vm-container": "c"}
	pod["spec"].(object)["initContainers"] = []object{
		{"name": "before", "image": suite.busybox, "command": []string{"true"}},
		{"name": "along", "image": suite.busybox, "command": []string{"sleep", "100000"}, "restartPolicy": "Always"},
	}
	shell := func(command string) object { return object{"exec": object{"command": []string{"sh", "-c", command}}} }
	maps.Copy(container(pod), object{
		"stdin": true, "tty": true,
		"ports": []object{{"containerPort": 80, "hostPort": 8099}},
		"securityContext": object{
			"runAsUser": 1000, "readOnlyRootFilesystem": true, "capabilities": object{"add": []string{"NET_ADMIN"}, "drop": []string{"ALL"}},
			"seccompProfile": object{"type": "RuntimeDefault"},
		},
		"lifecycle": object{
			"postStart": shell("echo by its hook >/run/started; nc -ll -p 5000 -e nc " + w.host + " " + strconv.Itoa(w.grpc) + " </dev/null >/dev/null 2>&1 &"),
			"preStop":   shell("wget -q -O - " + w.url("/stopped")),
		},
		"startupProbe":   object{"exec": object{"command": []string{"test", "-e", "/run/started"}}, "timeoutSeconds": 10, "failureThreshold": 60, "periodSeconds": 5},
		"livenessProbe":  object{"grpc": object{"port": 5000}, "timeoutSeconds": 10, "failureThreshold": 10},
		"readinessProbe": object{"httpGet": object{"port": 80, "path": "/cgi-bin/info"}, "timeoutSeconds": 10, "periodSeconds": 2},
	})
	return pod
}

// quietPod is a VM without an agent, in a user namespace, that takes the node's seat.
func quietPod(w *witness) object {
	pod := vmPod(quiet, suite.tiny)
	spec := pod["spec"].(object)
	pod["metadata"].(object)["annotations"] = object{"nodevirt.io/vm-container": "c"}
	spec["hostUsers"] = false
	spec["terminationGracePeriodSeconds"] = 10
	c := container(pod)
	c["resources"].(object)["limits"].(object)[seat] = "1"
	c["lifecycle"] = object{
		"postStart": object{"httpGet": object{"host": w.host, "port": w.http, "path": "/started"}},
		"preStop":   object{"sleep": object{"seconds": 1}},
	}
	c["startupProbe"] = object{"tcpSocket": object{"port": 80}, "timeoutSeconds": 10, "failureThreshold": 60, "periodSeconds": 5}
	spec["containers"] = append(spec["containers"].([]object), object{
		"name": "beside", "image": suite.busybox, "command": []string{"sleep", "100000"},
	})
	return pod
}

// pageRows are the features of the page's table.
func pageRows(t *testing.T) []string {
	t.Helper()
	root, err := checkout()
	assert.NilError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs/pod-fields.md"))
	assert.NilError(t, err)
	var rows []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(string(text), -1)[1:] {
		rows = append(rows, strings.ReplaceAll(row[1], "`", ""))
	}
	slices.Sort(rows)
	return rows
}

// changed is a VM's pod with a change of its spec and of the VM's container.
func changed(name string, change func(spec, c object)) object {
	pod := vmPod("fields-"+name, suite.tiny)
	change(pod["spec"].(object), container(pod))
	return pod
}

// refusedField creates a pod that must not start, and waits for words that say why.
func refusedField(t *testing.T, name string, change func(spec, c object), words ...string) {
	t.Helper()
	waitingFor(t, run(t, changed(name, change)), ".status.containerStatuses[0]", words...)
}

// waitingFor waits until a container waits with words.
func waitingFor(t *testing.T, pod, path string, words ...string) {
	t.Helper()
	wait.Success(t, "the reason why a container of "+pod+" is not created", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "pod", pod, "-o", "jsonpath={"+path+".state.waiting.message}")
		for _, w := range words {
			if err == nil && !strings.Contains(out, w) {
				err = fmt.Errorf("without %q: %q", w, out)
			}
		}
		return err
	})
}

// warnedField has the API server look at a pod, of which it must warn.
func warnedField(t *testing.T, name string, change func(spec, c object), words string) {
	t.Helper()
	wait.Success(t, "a warning of "+name, func(context.Context) error {
		out, err := sent(t, changed(name, change), "create", "--dry-run=server", "-f", "-")
		if err == nil && (!strings.Contains(out, "Warning: ") || !strings.Contains(out, words)) {
			err = errors.New(out)
		}
		return err
	})
}
