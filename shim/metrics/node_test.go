package metrics_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

type sourceFunc func(context.Context) metrics.Snapshot

func (f sourceFunc) Snapshot(ctx context.Context) metrics.Snapshot { return f(ctx) }

// TestTwoOfOneName: pods of one name don't fail the scrape; the scrape has the later
// VM.
func TestTwoOfOneName(t *testing.T) {
	m := metrics.New()
	vm := func(started int64, cpu uint64) metrics.VM {
		return metrics.VM{Namespace: "n", Name: "v", Started: time.Unix(started, 0), Group: &cgroup.Stats{CPU: cpu}}
	}
	m.Collect(sourceFunc(func(context.Context) metrics.Snapshot {
		return metrics.Snapshot{VMs: []metrics.VM{vm(1, 1e9), vm(3, 3e9), vm(2, 2e9)}}
	}), "here")
	status, body := serve(t, m)("/metrics")
	want := `kubevirt_vmi_cpu_usage_seconds_total{name="v",namespace="n",node="here"} 3` + "\n"
	if status != http.StatusOK || strings.Count(body, "kubevirt_vmi_cpu_usage_seconds_total{") != 1 || !strings.Contains(body, want) {
		t.Errorf("status %d:\n%s", status, body)
	}
}

// TestProblems: each kind of problem has a series, also while a snapshot takes too long.
func TestProblems(t *testing.T) {
	m := metrics.New()
	m.CollectProblems(func() []nodeproblems.Problem { return []nodeproblems.Problem{{Reason: nodeproblems.PodsLost}} })
	status, body := serve(t, m)("/metrics")
	for _, want := range []string{`nodevirt_node_problem{reason="PodsLost"} 1` + "\n", `nodevirt_node_problem{reason="NoRoomForLibvirtd"} 0` + "\n"} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("status %d, no %s", status, want)
		}
	}
}

// TestFilesystems: what a guest says of its file systems has a bound, and fails no scrape.
func TestFilesystems(t *testing.T) {
	m := metrics.New()
	vm := metrics.VM{Namespace: "n", Name: "v"}
	vm.Filesystems = []metrics.Filesystem{
		{Disk: "vda1", MountPoint: "/", Type: "ext4", Used: 1, Total: 2}, {Disk: "vda1", MountPoint: "/", Type: "ext4", Used: 3, Total: 4},
		{Disk: "old", MountPoint: "/old"},
	}
	for i := range 100 {
		vm.Filesystems = append(vm.Filesystems, metrics.Filesystem{Disk: strings.Repeat("x", i), Total: 1})
	}
	m.Collect(sourceFunc(func(context.Context) metrics.Snapshot { return metrics.Snapshot{VMs: []metrics.VM{vm}} }), "here")
	status, body := serve(t, m)("/metrics")
	const labels = `{disk_name="vda1",file_system_type="ext4",mount_point="/",name="v",namespace="n",node="here"} `
	for _, want := range []string{"kubevirt_vmi_filesystem_capacity_bytes" + labels + "2\n", "kubevirt_vmi_filesystem_used_bytes" + labels + "1\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if got := strings.Count(body, "kubevirt_vmi_filesystem_used_bytes{"); status != http.StatusOK || got != 32 {
		t.Errorf("status %d, %d series", status, got)
	}
}

// TestDeprecatedMachines: the last report counts.
func TestDeprecatedMachines(t *testing.T) {
	m := metrics.New()
	get := serve(t, m)
	m.Collect(sourceFunc(func(context.Context) metrics.Snapshot { return metrics.Snapshot{} }), "here")
	for _, types := range [][]string{{"pc-i440fx-1.4"}, {"pc-i440fx-1.7"}} {
		m.DeprecatedMachines(types)
	}
	_, body := get("/metrics")
	want := `kubevirt_node_deprecated_machine_types{machine_type="pc-i440fx-1.7",node="here"} 1` + "\n"
	if !strings.Contains(body, want) || strings.Contains(body, "pc-i440fx-1.4") {
		t.Error(body)
	}
}

// TestSetNode: the label follows the name that the API server has of the node.
func TestSetNode(t *testing.T) {
	m := metrics.New()
	get := serve(t, m)
	m.Collect(sourceFunc(func(context.Context) metrics.Snapshot {
		return metrics.Snapshot{VMs: []metrics.VM{{Namespace: "n", Name: "v"}}, Expanding: []metrics.Expansion{{Namespace: "n", Name: "v", Disk: "d"}}}
	}), "host")
	m.DeprecatedMachines([]string{"pc-i440fx-1.7"})
	for _, name := range []string{"host", "worker-1.example.com"} {
		m.SetNode(name)
		_, body := get("/metrics")
		if all, ours := strings.Count(body, `node="`), strings.Count(body, `node="`+name+`"`); ours < 3 || ours != all {
			t.Errorf("%d of %d series have the node %s:\n%s", ours, all, name, body)
		}
	}
}

// TestMigration: a copy in progress has series by KubeVirt's names, and a VM without one has none.
func TestMigration(t *testing.T) {
	m := metrics.New()
	m.Collect(sourceFunc(func(context.Context) metrics.Snapshot {
		return metrics.Snapshot{VMs: []metrics.VM{
			{Namespace: "n", Name: "moves", Migration: &domain.Job{Total: 60, Processed: 40, Remaining: 20, Dirty: 3, Memory: 2, Disk: 1}},
			{Namespace: "n", Name: "stays"},
		}}
	}), "here")
	var got []string
	_, body := serve(t, m)("/metrics")
	for line := range strings.Lines(body) {
		if of, ok := strings.CutPrefix(strings.TrimSpace(line), "kubevirt_vmi_migration_"); ok {
			got = append(got, of)
		}
	}
	slices.Sort(got)
	const of = `_bytes{name="moves",namespace="n",node="here"} `
	want := []string{
		"data_processed" + of + "40", "data_remaining" + of + "20", "data_total" + of + "60",
		"dirty_memory_rate" + of + "3", "disk_transfer_rate" + of + "1", "memory_transfer_rate" + of + "2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestSlowSource: a scrape does not wait for ever, those that come meanwhile share
// one snapshot, and so do those that come soon after.
func TestSlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken atomic.Int32
		hang := make(chan struct{})
		m := metrics.New()
		m.Collect(sourceFunc(func(context.Context) metrics.Snapshot {
			taken.Add(1)
			<-hang
			return metrics.Snapshot{Libvirt: true}
		}), "here")
		snapshotOK := func(want string) {
			t.Helper()
			if lines := m.Lines(t); !slices.Contains(lines, "nodevirt_snapshot_ok "+want) {
				t.Errorf("not %s: %q", want, lines)
			}
		}
		begun := time.Now()
		snapshotOK("0")
		snapshotOK("0")
		if n, took := taken.Load(), time.Since(begun); n != 1 || took > 10*time.Second {
			t.Errorf("%d snapshots were taken within %s", n, took)
		}
		close(hang)
		synctest.Wait()
		snapshotOK("1")
		snapshotOK("1")
		if n := taken.Load(); n != 1 {
			t.Errorf("%d snapshots were taken, of which the last could be shared", n)
		}
		time.Sleep(4 * time.Second)
		snapshotOK("1")
		if n := taken.Load(); n != 2 {
			t.Errorf("%d snapshots were taken", n)
		}
	})
}
