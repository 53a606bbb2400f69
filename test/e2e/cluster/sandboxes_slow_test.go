//go:build cluster && slow

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The examples of sandboxes work with the controller of sandboxes, as its project has it.
func TestTheExamplesOfSandboxes(t *testing.T) {
	t.Parallel()
	runSandboxes(t)
	_, err := clustertest.PushDisk(t.Context(), suite.Cluster, "sandbox:1", guest.TinyWithAgent)
	assert.NilError(t, err)
	t.Run("one", aSandbox)
	t.Run("warm", warmSandboxes)
}

// runSandboxes has that controller run until the test ends: its program and its manifests are those of
// `test/tools/build agent_sandbox`.
func runSandboxes(t *testing.T) {
	t.Helper()
	const namespace, deployment = "--namespace=agent-sandbox-system", "deployment/agent-sandbox-controller"
	top, err := checkout()
	assert.NilError(t, err)
	img, err := images.FromProgram(filepath.Join(top, "bin", "agent-sandbox-controller"), "")
	assert.NilError(t, err)
	ref, err := suite.Push(t.Context(), "agent-sandbox-controller:dev", img)
	assert.NilError(t, err)
	text, err := os.ReadFile(filepath.Join(top, "bin", "agent-sandbox.yaml"))
	assert.NilError(t, err)
	// The manifests name the program for the one who builds the image.
	const program = "ko://sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller"
	manifests := strings.ReplaceAll(string(text), program, ref)
	assert.Assert(t, manifests != string(text), "no image %s", program)
	file := filepath.Join(t.TempDir(), "agent-sandbox.yaml")
	assert.NilError(t, os.WriteFile(file, []byte(manifests), 0o600))
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			logs, _ := suite.Kubectl(ctx, "logs", namespace, deployment, "--tail=200")
			t.Log(logs)
		}
		_, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "--cascade=foreground", "-f", file)
		return err
	})
	kubectl(t, "apply", "--server-side", "-f", file)
	kubectl(t, "rollout", "status", namespace, deployment, fmt.Sprintf("--timeout=%s", patience))
	for _, crd := range []string{"sandboxes", "sandboxtemplates.extensions", "sandboxwarmpools.extensions", "sandboxclaims.extensions"} {
		assert.NilError(t, suite.WaitFor(t.Context(), "crd/"+crd+".agents.x-k8s.io", "condition=Established"))
	}
}

// aSandbox has its guest, which keeps its disk while it does not run, until it is deleted.
func aSandbox(t *testing.T) {
	const name, pvc = "workspace", "pvc/root-workspace"
	apply(t, "sandbox.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "sandbox/"+name, "condition=Ready"))
	first := answer(t, name) // by the Service
	assert.Equal(t, first.Hostname, name)
	write(t, name, "kept")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=nodevirt.io/AgentConnected"))
	assert.Equal(t, kubectl(t, "exec", name, "--", "cat", "/proc/sys/kernel/random/boot_id"), first.BootID)

	kubectl(t, "scale", "sandbox/"+name, "--replicas=0")
	isGone(t, "pod/"+name)
	assert.NilError(t, suite.WaitFor(t.Context(), "sandbox/"+name, "jsonpath={.status.replicas}=0"))
	kubectl(t, "scale", "sandbox/"+name, "--replicas=1")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=Ready"))
	assert.NilError(t, suite.WaitFor(t.Context(), "sandbox/"+name, "jsonpath={.status.replicas}=1"))
	assert.NilError(t, suite.WaitFor(t.Context(), "sandbox/"+name, "condition=Ready"))
	if second := answer(t, name); second.BootID == first.BootID {
		t.Errorf("the guest did not boot again: %+v", second)
	}
	asked(t, name, "/cgi-bin/disk", "kept")

	kubectl(t, "patch", "sandbox", name, "--type=merge", "-p", `{"spec":{"shutdownTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "sandbox/"+name, `jsonpath={.status.conditions[?(@.type=="Ready")].reason}=SandboxExpired`))
	isGone(t, "pod/"+name)
	isGone(t, "service/"+name)
	kubectl(t, "get", pvc)
	kubectl(t, "delete", "-f", filepath.Join(examples(t), "sandbox.yaml"))
	isGone(t, pvc)
}

// warmSandboxes go on from one guest that has booted. A SandboxClaim gets one that runs already; another takes its
// place in the pool.
func warmSandboxes(t *testing.T) {
	const pods, claim = "--selector=app=sandboxes", "agent"
	example := filepath.Join(examples(t), "sandboxes.yaml")
	text, err := os.ReadFile(example)
	assert.NilError(t, err)

	// As the example says.
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "-f", example)
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), strings.ReplaceAll(string(text), "sandbox:booted", "sandbox:1")))
	assert.NilError(t, suite.WaitFor(t.Context(), "sandboxwarmpool/sandboxes", "jsonpath={.status.readyReplicas}=2"))
	template := kubectl(t, "get", "pods", pods, "-o", "jsonpath={.items[0].metadata.name}")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+template, "condition=nodevirt.io/AgentConnected"))
	saved := identityIn(t, template, "guest")
	assert.NilError(t, pushBooted(t, template, "guest", "sandbox:booted"))
	kubectl(t, "delete", "-f", example)
	isGone(t, "pods", pods)

	// The first SandboxClaim may come before the pool; its guest is a fork, too.
	apply(t, "sandboxes.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "sandboxwarmpool/sandboxes", "jsonpath={.status.readyReplicas}=2"))
	assert.NilError(t, suite.WaitFor(t.Context(), "sandboxclaim/"+claim, "condition=Ready"))
	var all []string
	wait.Success(t, "the pool of two and the claim's pod", func(ctx context.Context) error { // the pool may make one too many
		out, err := suite.Kubectl(ctx, "get", "pods", pods, "-o", "jsonpath={.items[*].metadata.name}")
		if all = strings.Fields(out); err == nil && len(all) != 3 {
			err = fmt.Errorf("pods %q", all)
		}
		return err
	})
	seen := map[string]bool{saved.machine: true}
	for _, pod := range all {
		renewed(t, pod)
		id := identityIn(t, pod, "guest")
		if id.boot != saved.boot || id.host != pod || seen[id.machine] {
			t.Errorf("%s is %+v; saved was %+v", pod, id, saved)
		}
		seen[id.machine] = true
	}

	released := sandboxPod(t, claim, all)
	kubectl(t, "delete", "sandboxclaim", claim)
	isGone(t, "pod/"+released)
	warm := pooled(t, released)
	const mark = "/run/mark"
	uids := map[string]string{}
	for _, pod := range warm {
		uids[pod] = field(t, pod, ".metadata.uid")
		kubectl(t, "exec", pod, "--", "sh", "-c", "echo "+pod+" >"+mark)
	}
	begun := time.Now()
	kubectl(t, "apply", "--server-side", "-f", example)
	assert.NilError(t, suite.WaitFor(t.Context(), "sandboxclaim/"+claim, "condition=Ready"))
	t.Logf("the claim has its guest after %s", time.Since(begun))
	pod := sandboxPod(t, claim, warm)
	assert.Equal(t, field(t, pod, ".metadata.uid"), uids[pod])
	assert.Equal(t, field(t, pod, ".status.containerStatuses[0].restartCount"), "0")
	assert.Equal(t, kubectl(t, "exec", pod, "--", "cat", mark), pod)
	assert.Equal(t, identityIn(t, pod, "guest").boot, saved.boot)
	pooled(t, pod)
	routed(t, claim, field(t, pod, ".status.podIP"))

	kubectl(t, "patch", "sandboxclaim", claim, "--type=merge", "-p",
		`{"spec":{"lifecycle":{"shutdownPolicy":"Delete","shutdownTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}`)
	for _, o := range []string{"sandboxclaim/" + claim, "sandbox/" + claim, "service/" + claim, "pod/" + pod} {
		isGone(t, o)
	}
	kubectl(t, "delete", "--ignore-not-found", "-f", example)
	isGone(t, "pods", pods)
	isGone(t, "networkpolicy/sandboxes-network-policy")
}

// isGone waits until there is no such object.
func isGone(t *testing.T, args ...string) {
	t.Helper()
	kubectl(t, append([]string{"wait", "--for=delete", fmt.Sprintf("--timeout=%s", patience)}, args...)...)
}

// sandboxPod returns the pod of a SandboxClaim, which must be one of these.
func sandboxPod(t *testing.T, claim string, pods []string) string {
	t.Helper()
	sandbox := kubectl(t, "get", "sandboxclaim", claim, "-o", "jsonpath={.status.sandbox.Name}")
	pod := kubectl(t, "get", "sandbox", sandbox, "-o", `jsonpath={.metadata.annotations.agents\.x-k8s\.io/pod-name}`)
	if pod == "" {
		pod = sandbox
	}
	assert.Assert(t, slices.Contains(pods, pod), "%s is none of %q", pod, pods)
	return pod
}

// pooled waits until two pods are ready in the pool, none of them this one, and returns them.
func pooled(t *testing.T, other string) (pods []string) {
	t.Helper()
	wait.Success(t, "two guests in the pool", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "pods", "--selector=agents.x-k8s.io/pool", "-o",
			`jsonpath={range .items[*]}{.metadata.name}{"="}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}`)
		if err != nil {
			return err
		}
		pods = nil
		for pod := range strings.FieldsSeq(out) {
			if name, ok := strings.CutSuffix(pod, "=True"); ok && name != other {
				pods = append(pods, name)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("there are %q", out)
		}
		return nil
	})
	return pods
}

// routed checks the network policy of sandboxes that have none in their template: the router alone reaches a guest.
func routed(t *testing.T, service, ip string) {
	t.Helper()
	router := plainPod("sandbox-router", suite.busybox, "sleep", "1000000")
	router["metadata"].(object)["labels"] = object{"app": "sandbox-router"}
	router["spec"].(object)["shareProcessNamespace"] = true // pause reaps what timeout(1) leaves
	from := ready(t, router)
	for _, host := range []string{service, ip} {
		wait.Success(t, "an answer of "+host, func(ctx context.Context) error {
			page, err := askFrom(ctx, from, host, "/cgi-bin/info")
			if err == nil && page == "" {
				err = errors.New("an empty page")
			}
			return err
		})
	}
	if page, err := ask(t.Context(), ip, "/cgi-bin/info"); err == nil {
		t.Errorf("another pod than the router gets %q", page)
	}
}
