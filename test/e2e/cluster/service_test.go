//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/nodevirt/nodevirt/test/wait"
)

func TestOrdinaryPodsAreContainerds(t *testing.T) {
	t.Parallel()
	pod := plainPod("ordinary", suite.busybox, "sh", "-c", "echo hello from $(hostname); exec httpd -f -p 80 -h /etc")
	pod["metadata"].(object)["labels"] = object{"app": "ordinary"}
	name := ready(t, pod)
	// A container without a probe is Ready before it has done anything.
	wait.Success(t, "its log", func(ctx context.Context) error {
		got, err := suite.Kubectl(ctx, "logs", name)
		if err == nil && got != "hello from ordinary\n" {
			err = fmt.Errorf("log: %q", got)
		}
		return err
	})
	if got := kubectl(t, "exec", name, "--", "cat", "/etc/hostname"); got != "ordinary" {
		t.Errorf("exec: %q", got)
	}
	kubectl(t, "expose", "pod", name, "--port=80")
	t.Cleanup(func() {
		if _, err := suite.Kubectl(context.WithoutCancel(t.Context()), "delete", "service", name); err != nil {
			t.Error(err)
		}
	})
	asked(t, name, "/passwd", "root:")
}

func TestAGuestAnswersThroughItsService(t *testing.T) {
	t.Parallel()
	got := answer(t, vm+".default.svc.cluster.local")
	if got.Hostname != vm {
		t.Errorf("host name: %q", got.Hostname)
	}
	if direct := answer(t, field(t, vm, ".status.podIP")); direct != got {
		t.Errorf("through the Service: %+v, at the pod's address: %+v", got, direct)
	}
}

// Guests resolve names by the cluster's DNS, and reach Services.
func TestAGuestUsesTheClustersNames(t *testing.T) {
	t.Parallel()
	asked(t, vm, "/cgi-bin/resolve?kubernetes.default.svc.cluster.local", "10.96.0.1")
	// Its own Service's, too, which the node sends back to where it comes from.
	asked(t, vm, "/cgi-bin/fetch?http://"+vm+"/", "host="+vm)
}

// What the scheduler counts is the guest's memory and the RuntimeClass's overhead.
func TestTheOverheadIsCounted(t *testing.T) {
	t.Parallel()
	class := kubectl(t, "get", "runtimeclass", "vm", "-o", "jsonpath={.overhead.podFixed.memory}")
	if got := field(t, vm, ".spec.overhead.memory"); got != class || got == "" {
		t.Errorf("overhead of the pod: %q, of its class: %q", got, class)
	}
}
