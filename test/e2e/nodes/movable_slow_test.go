//go:build cluster && slow

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/test/wait"
)

// movable is a VM whose guest moves when its node is drained. Its pods have the label group=GROUP, too.
func movable(name, group string) object {
	o := vm(name, func(spec object) {
		rather(harmed)(spec)
		spec["evictionStrategy"] = "LiveMigrate"
		domain := spec["domain"].(object)
		// Twenty of them fit on a node with two processors.
		domain["resources"] = object{"requests": object{"cpu": "40m"}}
		devices := domain["devices"].(object)
		devices["interfaces"] = []object{{"name": "default", "masquerade": object{}}}
		devices["disks"] = append(devices["disks"].([]object), object{"name": "data", "disk": object{"bus": "virtio"}})
		spec["volumes"] = append(spec["volumes"].([]object), object{"name": "data", "emptyDisk": object{"capacity": "16Mi"}})
	})
	o["spec"].(object)["template"].(object)["metadata"].(object)["labels"].(object)["group"] = group
	return o
}

// moves follows the migrations of the cluster. It fails the test if more are under way at once than
// the limits allow.
type moves struct {
	t    *testing.T
	stop func()

	mu   sync.Mutex
	all  map[string]kubevirt.VirtualMachineInstanceMigration
	made int // migrations, deleted ones included
	most int // under way at once
}

// followMoves follows migrations until the test ends.
func followMoves(t *testing.T) *moves {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := suite.KubectlCommand(ctx, "get", "vmim", "--watch", "--output-watch-events", "-o", "json")
	out, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	m := &moves{t: t, all: map[string]kubevirt.VirtualMachineInstanceMigration{}}
	var follows sync.WaitGroup
	follows.Go(func() {
		for events := json.NewDecoder(out); ; {
			var e struct {
				Type   string
				Object kubevirt.VirtualMachineInstanceMigration
			}
			if err := events.Decode(&e); err != nil {
				if ctx.Err() == nil {
					t.Errorf("follow migrations: %v", err)
				}
				return
			}
			m.take(e.Type, e.Object)
		}
	})
	m.stop = sync.OnceFunc(func() {
		cancel()
		follows.Wait()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(m.stop)
	return m
}

// take notes a change of a migration.
func (m *moves) take(event string, one kubevirt.VirtualMachineInstanceMigration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.all[one.Name]; !known {
		m.made++
	}
	m.all[one.Name] = one
	if event == "DELETED" {
		delete(m.all, one.Name)
	}
	cluster, from := 0, map[string]int{}
	for _, one := range m.all {
		if p := one.Status.Phase; one.IsFinal() || p == kubevirt.MigrationPhaseUnset || p == kubevirt.MigrationPending {
			continue
		}
		cluster++
		if s := one.Status.MigrationState; s != nil {
			from[s.SourceNode]++
		}
	}
	m.most = max(m.most, cluster)
	limits := config.Config{}.Migrations()
	if cluster > int(*limits.ParallelMigrationsPerCluster) {
		m.t.Errorf("%d migrations are under way", cluster)
	}
	for node, n := range from {
		if n > int(*limits.ParallelOutboundMigrationsPerNode) {
			m.t.Errorf("%d migrations from %s are under way", n, node)
		}
	}
}

// count returns how many migrations there were, and how many of those that are left succeeded.
func (m *moves) count() (made, succeeded, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		if one.Status.Phase == kubevirt.MigrationSucceeded {
			succeeded++
		}
	}
	return m.made, succeeded, m.most
}

// watchRunning fails the test if the guest of a VM ever runs on two nodes, until the test ends or stop is
// called. Unlike [watchTwo] it accepts a QEMU that waits for a guest, or whose guest has left.
func watchRunning(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			for name, nodes := range runTwice(ctx) {
				t.Errorf("the guest of %s runs on %s at once", name, nodes)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		watch.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// runTwice returns the VMs whose guest runs on two nodes at once. A guest that moves between two looks
// does not count: each node but the last is asked twice.
func runTwice(ctx context.Context) map[string]string {
	twice := map[string]string{}
	first, second := running(ctx, steady), running(ctx, harmed)
	again := map[string]bool{}
	for name := range first {
		if second[name] {
			again = running(ctx, steady)
			break
		}
	}
	for name := range first {
		if second[name] && again[name] {
			twice[name] = steady + " and " + harmed
		}
	}
	return twice
}

// running returns the VMs whose guests run on a node; none if its libvirtd is away.
func running(ctx context.Context, node string) map[string]bool {
	all := map[string]bool{}
	n := suite.Node(node)
	if n == nil {
		return all
	}
	names, err := n.Output(ctx, "virsh", "list", "--state-running", "--name")
	if err != nil {
		return all
	}
	for domain := range strings.FieldsSeq(names) {
		if name := vmOf(domain); name != "" {
			all[name] = true
		}
	}
	return all
}

// migratable waits until a VM's instance says that it can move.
func migratable(t *testing.T, name string) {
	t.Helper()
	waitFor(t, "vmi/"+name, "condition=LiveMigratable=True")
}

// settledAt waits until a VM's guest answers with its boot's ID, from a node, and no pod but its own is left.
func settledAt(t *testing.T, name, boot, node string) {
	t.Helper()
	if got := answer(t, name, ""); got != boot {
		t.Errorf("%s was booted again", name)
	}
	if at := vmiField(t, name, ".status.nodeName"); at != node {
		t.Errorf("%s runs on %q, not on %s", name, at, node)
	}
	wait.Success(t, "one pod of "+name, func(ctx context.Context) error {
		pods, err := suite.Kubectl(ctx, "get", "pods", "--selector=app="+name, "-o",
			`jsonpath={range .items[*]}{.spec.nodeName}/{.status.phase} {end}`)
		if pods = strings.TrimSpace(pods); err == nil && pods != node+"/Running" {
			err = fmt.Errorf("its pods: %s", pods)
		}
		return err
	})
}
