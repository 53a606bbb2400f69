//go:build nested

package nested

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// patience bounds each wait: a cluster boots in emulated guests, which have more time if kubectl asks seldom.
const (
	patience = 75 * time.Minute
	pause    = 10 * time.Second
)

// workers are the names of the inner cluster's workers.
var workers = []string{"inner-worker-0", "inner-worker-1"}

// inner is the cluster whose nodes are VMs.
type inner struct {
	example, kubeconfig string
}

// TestTheExampleOfKubernetes creates the cluster, and asks pods of it through the outer cluster's Service.
func TestTheExampleOfKubernetes(t *testing.T) {
	bin, err := node.CheckoutBin()
	assert.NilError(t, err)
	dir := t.TempDir()
	c := inner{filepath.Join(filepath.Dir(bin), "examples", "kubernetes-on-kubernetes"), filepath.Join(dir, "inner.kubeconfig")}
	t.Cleanup(func() { c.remove(t) })
	out, err := c.outer(t.Context(), dir, c.example+"/create.sh").CombinedOutput()
	t.Logf("%s", out)
	assert.NilError(t, err)
	go c.forward(t.Context())

	want := append([]string{"inner-control-plane=True"}, workers[0]+"=True", workers[1]+"=True")
	until(t, "the inner cluster's nodes", func(ctx context.Context) error {
		got, err := c.kubectl(ctx, "get", "nodes", "--sort-by=.metadata.name", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err == nil && !slices.Equal(strings.Fields(got), want) {
			err = fmt.Errorf("nodes: %s", got)
		}
		return err
	})
	until(t, "the web server", func(ctx context.Context) error {
		if _, err := c.kubectl(ctx, "apply", "-f", c.example+"/web.yaml"); err != nil {
			return err
		}
		_, err := c.kubectl(ctx, "rollout", "status", "daemonset/web", "--timeout=4m")
		return err
	})
	t.Run("from the outer cluster", c.asksFromOutside)
	t.Run("from the inner cluster", c.asksFromInside)
	show, err := c.kubectl(t.Context(), "get", "nodes,pods", "-A", "-o", "wide")
	t.Logf("%s%v", show, err)
}

// asksFromOutside asks until the pods of both workers have answered a pod of the outer cluster: NodePorts lead to
// other nodes, too.
func (c inner) asksFromOutside(t *testing.T) {
	until(t, "answers of both workers", func(ctx context.Context) error {
		// Not wget -T: in Debian's busybox it crashes.
		out, err := suite.Kubectl(ctx, "run", "ask", "--rm", "-i", "--image=busybox:1", "--restart=Never", "--",
			"sh", "-c", "for i in $(seq 20); do timeout 20 wget -qO- http://inner-web; done")
		return answered(out, err)
	})
}

// asksFromInside has a pod of the inner cluster ask the Service by the inner cluster's DNS.
func (c inner) asksFromInside(t *testing.T) {
	until(t, "answers of both workers", func(ctx context.Context) error {
		out, err := c.kubectl(ctx, "exec", "daemonset/web", "--", "sh", "-c", "for i in $(seq 20); do timeout 20 wget -qO- http://web; done")
		return answered(out, err)
	})
}

// answered reports whether both workers' pods wrote lines.
func answered(out string, err error) error {
	for _, name := range workers {
		if err == nil && !strings.Contains(out, "hello from "+name+"\n") {
			err = fmt.Errorf("no answer of %s: %s", name, out)
		}
	}
	return err
}

// outer runs a program in a folder, as an administrator of the outer cluster.
func (c inner) outer(ctx context.Context, dir string, args ...string) *exec.Cmd {
	args = append([]string{"KUBECONFIG=" + filepath.Join(suite.PKI(), "admin.kubeconfig"), "sh", "-ec", `cd "$1"; shift; exec "$@"`, "sh", dir}, args...)
	return suite.Control().Command(ctx, "env", args...)
}

// forward forwards the port that inner.kubeconfig names. kubectl ends when a connection is refused.
func (c inner) forward(ctx context.Context) {
	for ctx.Err() == nil {
		_ = suite.KubectlCommand(ctx, "port-forward", "service/inner-api", "16443:6443").Run()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// kubectl runs kubectl in the inner cluster.
func (c inner) kubectl(ctx context.Context, args ...string) (string, error) {
	return suite.Control().Output(ctx, "kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// remove removes the example as its page says. If the test failed, it first logs what the nodes wrote.
func (c inner) remove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
	defer cancel()
	if t.Failed() {
		out, err := suite.Kubectl(ctx, "get", "vmi,pods,services,endpointslices", "-o", "wide")
		t.Logf("%s%v", out, err)
		pods, err := suite.Kubectl(ctx, "get", "pods", "--selector=cluster=inner", "-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			t.Error(err)
		}
		for pod := range strings.FieldsSeq(pods) {
			out, err := suite.Kubectl(ctx, "logs", "--tail=100", pod)
			t.Logf("%s: %s%v", pod, out, err)
			out, err = suite.Kubectl(ctx, "exec", pod, "--", "sh", "-c",
				"journalctl --no-pager -n 60 -u kubelet -u pod-network; PATH=$PATH:/usr/local/bin; crictl -r unix:///run/containerd/containerd.sock ps -a; ip address")
			t.Logf("%s: %s%v", pod, out, err)
		}
	}
	for _, args := range [][]string{
		{"delete", "--ignore-not-found", "-f", c.example + "/cluster.yaml"},
		{"delete", "--ignore-not-found", "secret", "inner-control-plane", "inner-worker"},
	} {
		if _, err := suite.Kubectl(ctx, args...); err != nil {
			t.Error(err)
		}
	}
}

// until tries until there is no error, and ends the test if patience is over.
func until(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		case <-time.After(pause):
		}
	}
}
