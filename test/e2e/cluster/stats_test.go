//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/wait"
)

// podStats is the part of the kubelet's summary that these tests read.
type podStats struct {
	PodRef     struct{ Name string }
	Containers []struct {
		Name   string
		CPU    struct{ UsageCoreNanoSeconds uint64 }
		Memory struct{ WorkingSetBytes, UsageBytes uint64 }
		Rootfs struct{ UsedBytes, CapacityBytes uint64 }
		Logs   struct{ UsedBytes uint64 }
	}
	Network          struct{ RxBytes, TxBytes uint64 }
	EphemeralStorage struct{ UsedBytes uint64 } `json:"ephemeral-storage"`
}

func summary(ctx context.Context, name string) (podStats, error) {
	text, err := askKubelet(ctx, name, "stats/summary")
	if err != nil {
		return podStats{}, err
	}
	var all struct{ Pods []podStats }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return podStats{}, err
	}
	for _, p := range all.Pods {
		if p.PodRef.Name == name && len(p.Containers) == 1 {
			return p, nil
		}
	}
	return podStats{}, fmt.Errorf("the summary has no pod %s with a container", name)
}

// The summary has a VM's figures where it has a container's, and they are the guest's.
func TestTheSummaryKnowsVMs(t *testing.T) {
	t.Parallel()
	var before podStats
	wait.Success(t, "figures of all kinds", func(ctx context.Context) (err error) {
		if before, err = summary(ctx, vm); err != nil {
			return err
		}
		c := before.Containers[0]
		for what, figure := range map[string]uint64{
			"CPU time": c.CPU.UsageCoreNanoSeconds, "working set": c.Memory.WorkingSetBytes, "memory": c.Memory.UsageBytes,
			"disk": c.Rootfs.UsedBytes, "disk's size": c.Rootfs.CapacityBytes, "log": c.Logs.UsedBytes,
			"received": before.Network.RxBytes, "sent": before.Network.TxBytes, "storage": before.EphemeralStorage.UsedBytes,
		} {
			if figure == 0 {
				return fmt.Errorf("%s: 0 in %+v", what, before)
			}
		}
		return nil
	})
	if got := before.Containers[0]; got.Name != "c" || got.Memory.WorkingSetBytes > 512<<20 {
		t.Errorf("container: %+v", got)
	}
	asked(t, vm, "/cgi-bin/burn?5", "burning")
	wait.Success(t, "the CPU time that the guest burned", func(ctx context.Context) error {
		now, err := summary(ctx, vm)
		if err != nil {
			return err
		}
		if used := now.Containers[0].CPU.UsageCoreNanoSeconds - before.Containers[0].CPU.UsageCoreNanoSeconds; used < 1e9 {
			return fmt.Errorf("only %d ns more", used)
		}
		return nil
	})
}

// These are what metrics-server reads for kubectl top.
func TestTheResourceMetricsKnowVMs(t *testing.T) {
	t.Parallel()
	wait.Success(t, "metrics of the VM", func(ctx context.Context) error {
		text, err := askKubelet(ctx, vm, "metrics/resource")
		if err != nil {
			return err
		}
		for _, series := range []string{
			`container_cpu_usage_seconds_total{container="c",namespace="default",pod="vm"}`,
			`container_memory_working_set_bytes{container="c",namespace="default",pod="vm"}`,
			`container_start_time_seconds{container="c",namespace="default",pod="vm"}`,
			`pod_cpu_usage_seconds_total{namespace="default",pod="vm"}`,
			`pod_memory_working_set_bytes{namespace="default",pod="vm"}`,
		} {
			if !strings.Contains(text, "\n"+series+" ") {
				return fmt.Errorf("no %s", series)
			}
		}
		return nil
	})
}
