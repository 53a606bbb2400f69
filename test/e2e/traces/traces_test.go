//go:build cluster

package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	agent string // image with guest.TinyWithAgent as /disk
}

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 1, Traces: true}, func(ctx context.Context, c *cluster.Cluster) (err error) {
		suite.Cluster = c
		if suite.agent, err = clustertest.PushDisk(ctx, c, "tiny-agent:1", guest.TinyWithAgent); err != nil {
			return err
		}
		return c.Deploy(ctx)
	}))
}

const (
	controller = "nodevirt-controller"
	shim       = "nodevirt-shim"
	podUID     = "k8s.pod.uid"
)

// TestStart: the collector gets the spans of a VM's start. Those of the admission are in the API server's trace,
// the node's in the kubelet's with containerd's below, and the controller's and the node's are linked to the
// trace of the creation.
func TestStart(t *testing.T) {
	text, err := json.Marshal(object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": "traced"},
		"spec": object{
			"terminationGracePeriodSeconds": 0,
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		},
	})
	assert.NilError(t, err)
	assert.NilError(t, suite.Apply(t.Context(), string(text)))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/traced", "condition=AgentConnected"))
	parent := clustertest.Kubectl(t, suite.Cluster, "get", "vmi/traced", "-o", `jsonpath={.metadata.annotations.trace\.nodevirt\.io/traceparent}`)
	parts := strings.Split(parent, "-")
	assert.Equal(t, len(parts), 4, "traceparent %q", parent)
	uid := clustertest.Kubectl(t, suite.Cluster, "get", "pods", "--selector=kubevirt.io=virt-launcher", "-o", "jsonpath={.items[0].metadata.uid}")

	var last collected
	wait.Success(t, "the spans of a start", func(context.Context) (err error) {
		if last, err = read(suite.Traces()); err != nil {
			return err
		}
		return start{last, parts[1], uid}.check()
	})
	for _, s := range last.find(shim, "StartContainer", podUID, uid) {
		top := s
		if above := last.above(s); len(above) > 0 {
			top = above[len(above)-1]
		}
		t.Logf("the trace of the node:\n%s", last.tree(top))
	}
	clustertest.Kubectl(t, suite.Cluster, "delete", "vmi/traced")
}

// start is the start of a VM whose creation has a trace, and whose pod has a UID.
type start struct {
	collected
	trace, uid string
}

func (s start) check() error {
	return errors.Join(s.admission(), s.reconcile(), s.node(), s.phases(), s.calls())
}

// one returns the first span of the pod's in the shim, by its name.
func (s start) one(name string) (span, error) {
	found := s.find(shim, name, podUID, s.uid)
	if len(found) == 0 {
		return span{}, fmt.Errorf("no span %s of pod %s", name, s.uid)
	}
	return found[0], nil
}

// admission checks that both webhooks are in the API server's trace of the request.
func (s start) admission() error {
	for _, name := range []string{"admission default", "admission validate"} {
		found := slices.DeleteFunc(s.find(controller, name, "", ""), func(one span) bool { return one.TraceID != s.trace })
		if len(found) == 0 {
			return fmt.Errorf("no span %s in trace %s", name, s.trace)
		}
		if !slices.ContainsFunc(s.above(found[0]), func(p span) bool { return p.service == "apiserver" }) {
			return fmt.Errorf("span %s is below none of the API server", name)
		}
	}
	return nil
}

// reconcile checks that the making of the pod is linked to the creation.
func (s start) reconcile() error {
	if !slices.ContainsFunc(s.find(controller, "reconcile VirtualMachineInstance", "", ""), func(one span) bool { return one.linked(s.trace) }) {
		return fmt.Errorf("no span of a reconcile is linked to trace %s", s.trace)
	}
	return nil
}

// node checks that the three calls are in one trace, which is the kubelet's, and are linked to the creation.
func (s start) node() error {
	trace := ""
	for _, name := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		one, err := s.one(name)
		if err != nil {
			return err
		}
		if trace == "" {
			trace = one.TraceID
		}
		if one.TraceID != trace {
			return fmt.Errorf("span %s is in trace %s, and RunPodSandbox in %s", name, one.TraceID, trace)
		}
		if !slices.ContainsFunc(s.above(one), func(p span) bool { return p.service == "kubelet" }) {
			return fmt.Errorf("span %s is below none of the kubelet", name)
		}
		if !one.linked(s.trace) {
			return fmt.Errorf("span %s is not linked to trace %s", name, s.trace)
		}
	}
	return nil
}

// phases checks that a start's phases are its children, and that the wait for the agent is in its trace.
func (s start) phases() error {
	start, err := s.one("StartContainer")
	if err != nil {
		return err
	}
	for _, name := range []string{"cgroup", "taps", "bridge", "dhcp", "console", "disks", "domain", "start", "process", "placement", "connect", "resume"} {
		found := s.find(shim, "phase "+name, "", "")
		if !slices.ContainsFunc(found, func(p span) bool { return p.TraceID == start.TraceID && p.ParentSpanID == start.SpanID }) {
			return fmt.Errorf("phase %s is no child of StartContainer", name)
		}
	}
	create, err := s.one("CreateContainer")
	if err != nil {
		return err
	}
	for _, name := range []string{"acquire", "files"} {
		if !slices.ContainsFunc(s.within(create), func(p span) bool { return p.Name == "phase "+name }) {
			return fmt.Errorf("phase %s is not below CreateContainer", name)
		}
	}
	if !slices.ContainsFunc(s.find(shim, "phase agent", "", ""), func(p span) bool { return p.TraceID == start.TraceID }) {
		return errors.New("phase agent is not in the trace of StartContainer")
	}
	return nil
}

// calls checks that libvirt's calls are below the start, and containerd's work below the sandbox.
func (s start) calls() error {
	start, err := s.one("StartContainer")
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.within(start), func(p span) bool { return strings.HasPrefix(p.Name, "libvirt ") }) {
		return errors.New("no call to libvirtd is below StartContainer")
	}
	sandbox, err := s.one("RunPodSandbox")
	if err != nil {
		return err
	}
	below := s.within(sandbox)
	if !slices.ContainsFunc(below, func(p span) bool {
		return p.service == shim && strings.HasPrefix(p.Name, "runtime.v1.RuntimeService/RunPodSandbox")
	}) {
		return errors.New("no call to containerd is below RunPodSandbox")
	}
	if !slices.ContainsFunc(below, func(p span) bool { return p.service == "containerd" }) {
		return errors.New("no span of containerd's is below RunPodSandbox")
	}
	return nil
}
