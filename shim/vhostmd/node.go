package vhostmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/sysfs"
)

// Node reads the metrics of a node.
type Node struct {
	// Name is the node's name, Proc and Sys its mounts of procfs and sysfs.
	Name, Proc, Sys string
}

// Metrics returns the metrics of the node, with the names and units of vhostmd. Those
// that can't be read are missing, and the error says why.
func (n Node) Metrics(now time.Time) ([]Metric, error) {
	all := []Metric{
		Text(Host, "HostName", n.Name),
		Text(Host, "HostSystemInfo", "linux"),
		Text(Host, "VirtualizationVendor", "nodevirt.io"),
		Text(Host, "VirtProductInfo", "qemu"),
	}
	var errs []error
	for _, read := range []func() ([]Metric, error){n.cpus, n.cpuTime, n.memory, n.swap} {
		some, err := read()
		all, errs = append(all, some...), append(errs, err)
	}
	all = append(all, Number(Host, "Time", "s", uint64(now.Unix())))
	if err := errors.Join(errs...); err != nil {
		return all, fmt.Errorf("read the node's metrics: %w", err)
	}
	return all, nil
}

// cpus counts the node's processor packages.
func (n Node) cpus() ([]Metric, error) {
	fs, err := sysfs.NewFS(n.Sys)
	if err != nil {
		return nil, err
	}
	cpus, err := fs.CPUs()
	if err != nil {
		return nil, err
	}
	packages := map[string]bool{}
	for _, cpu := range cpus {
		place, err := cpu.Topology()
		if err != nil {
			return nil, err
		}
		packages[place.PhysicalPackageID] = true
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no CPU in %s", n.Sys)
	}
	return []Metric{Number(Host, "NumberOfPhysicalCPUs", "", uint64(len(packages)))}, nil
}

func (n Node) cpuTime() ([]Metric, error) {
	fs, err := procfs.NewFS(n.Proc)
	if err != nil {
		return nil, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return nil, err
	}
	return []Metric{Seconds(Host, "TotalCPUTime", stat.CPUTotal.User+stat.CPUTotal.Nice+stat.CPUTotal.System)}, nil
}

func (n Node) memory() ([]Metric, error) {
	fs, err := procfs.NewFS(n.Proc)
	if err != nil {
		return nil, err
	}
	m, err := fs.Meminfo()
	if err != nil {
		return nil, err
	}
	given := func(v *uint64) uint64 {
		if v == nil {
			return 0
		}
		return *v
	}
	free, swapFree, cache := given(m.MemFree), given(m.SwapFree), given(m.Buffers)+given(m.Cached)
	used := given(m.MemTotal) - min(given(m.MemTotal), free+cache)
	swapUsed := given(m.SwapTotal) - min(given(m.SwapTotal), swapFree+given(m.SwapCached))
	return []Metric{
		Number(Host, "FreePhysicalMemory", "KiB", free),
		Number(Host, "FreeVirtualMemory", "KiB", free+swapFree),
		Number(Host, "MemoryAllocatedToVirtualServers", "KiB", used),
		Number(Host, "UsedVirtualMemory", "KiB", used+swapUsed),
	}, nil
}

// swap returns what the node has read from swap space and written there.
func (n Node) swap() ([]Metric, error) {
	text, err := os.ReadFile(filepath.Join(n.Proc, "vmstat"))
	if err != nil {
		return nil, err
	}
	page := uint64(os.Getpagesize()) / 1024
	var all []Metric
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		metric := map[string]string{"pswpin": "PagedInMemory", "pswpout": "PagedOutMemory"}[name]
		if metric == "" {
			continue
		}
		pages, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("vmstat: %w", err)
		}
		all = append(all, Number(Host, metric, "KiB", pages*page))
	}
	return all, nil
}
