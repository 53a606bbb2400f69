//go:build conformance

package conformance

import (
	"bufio"
	"context"
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/specs"
)

// machines is the cluster where the suite's pods of one container are VMs, and those pods' RuntimeClass.
const machines = "vm"

// forVMs are the words of the specs that make sense for a VM. Those of resizes do not: they give a pod 35 MiB, in
// which no kernel boots, and look at the container's cgroup.
const forVMs = `\[sig-node\] (Probing container|Container Lifecycle Hook|PreStop|Pods|Pods Extended)|` +
	`\[sig-apps\] (DisruptionController|ReplicaSet|ReplicationController|Deployment)|HostPort|Networking Granular`

// asVMs is the policy that makes the pods VMs.
//
//go:embed testdata/vm.yaml
var asVMs string

// TestVMs runs specs on a cluster whose API server makes their pods of one container VMs. Each that had a VM
// must end as the file says.
func TestVMs(t *testing.T) {
	with := &namespaces{all: map[string]bool{}}
	run := runOn(t, machines, forVMs, func(ctx context.Context, c *cluster.Cluster) error {
		if err := c.Deploy(ctx); err != nil {
			return err
		}
		image, err := pushGuest(ctx, c)
		if err != nil {
			return err
		}
		if err := c.Apply(ctx, strings.ReplaceAll(asVMs, "GUEST_IMAGE", image)); err != nil {
			return err
		}
		return with.follow(ctx, c)
	}, with.hadVM)
	specs.Compare(t, golden.Path(vmOutcomesFile), run)
}

// namespaces are those that had VMs.
type namespaces struct {
	mu  sync.Mutex
	all map[string]bool
}

// follow watches pods until the test ends.
func (n *namespaces) follow(ctx context.Context, c *cluster.Cluster) error {
	cmd := c.KubectlCommand(ctx, "get", "pods", "--all-namespaces", "--watch", "--output",
		`jsonpath={.metadata.namespace} {.spec.runtimeClassName}{"\n"}`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if name, class, _ := strings.Cut(lines.Text(), " "); class == machines {
				n.mu.Lock()
				n.all[name] = true
				n.mu.Unlock()
			}
		}
	}()
	return cmd.Start()
}

// ownNamespace is what the suite says at a spec's end.
var ownNamespace = regexp.MustCompile(`Destroying namespace "([^"]+)" for this suite`)

// hadVM reports whether one of a spec's pods was a VM, by its output.
func (n *namespaces) hadVM(output string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(ownNamespace.FindAllStringSubmatch(output, -1), func(m []string) bool { return n.all[m[1]] })
}

// pushGuest pushes an image whose guest runs the suite's program.
func pushGuest(ctx context.Context, c *cluster.Cluster) (string, error) {
	bin, err := node.CheckoutBin()
	if err != nil {
		return "", err
	}
	disk, err := guest.TinyToRun(ctx, c.Control().GuestOptions(), map[string]string{"agnhost": bin + "/e2e-agnhost"})
	if err != nil {
		return "", err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	if err != nil {
		return "", err
	}
	return c.Push(ctx, "vm:1", img)
}
