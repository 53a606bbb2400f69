package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
)

// networkNamespace finds the path of a pod's network namespace in the verbose
// status that containerd gives of its sandbox.
func networkNamespace(info string) (string, error) {
	var sandbox struct {
		RuntimeSpec *specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(info), &sandbox); err != nil {
		return "", fmt.Errorf("read containerd's verbose status: %w", err)
	}
	if sandbox.RuntimeSpec != nil && sandbox.RuntimeSpec.Linux != nil {
		for _, ns := range sandbox.RuntimeSpec.Linux.Namespaces {
			if ns.Type == specs.NetworkNamespace && ns.Path != "" {
				return ns.Path, nil
			}
		}
	}
	return "", errors.New("containerd's verbose status names no network namespace of the pod's own")
}

// dns is a pod's resolver settings.
type dns struct {
	servers  []netip.Addr
	searches []string
}

// podDNS is what CRI said of a pod's DNS; if it said nothing the node's own, as
// a container would get it.
func (m *Manager) podDNS(config *runtimeapi.PodSandboxConfig) (dns, error) {
	if d := config.GetDnsConfig(); len(d.GetServers())+len(d.GetSearches())+len(d.GetOptions()) > 0 {
		return dns{servers: addresses(d.GetServers()), searches: d.GetSearches()}, nil
	}
	f, err := os.Open(m.ResolvConf)
	if err != nil {
		return dns{}, fmt.Errorf("read the node's DNS settings: %w", err)
	}
	defer f.Close()
	return readResolvConf(f)
}

// readResolvConf reads resolv.conf(5).
func readResolvConf(r io.Reader) (dns, error) {
	var d dns
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		switch f := strings.Fields(lines.Text()); {
		case len(f) < 2:
		case f[0] == "nameserver":
			d.servers = append(d.servers, addresses(f[1:2])...)
		case f[0] == "search", f[0] == "domain":
			d.searches = f[1:]
		}
	}
	if err := lines.Err(); err != nil {
		return dns{}, fmt.Errorf("read the node's DNS settings: %w", err)
	}
	return d, nil
}

// addresses keeps the servers that a guest can reach: not those on loopback,
// which is the guest's own.
func addresses(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		if a, err := netip.ParseAddr(t); err == nil && !a.IsLoopback() {
			all = append(all, a)
		}
	}
	return all
}

// limits are what the processes around one VM may use: the container's own
// limits, and on top what the pod's overhead (or the node's default) allows QEMU.
func (m *Manager) limits(c *runtimeapi.LinuxContainerResources, sandbox *runtimeapi.PodSandboxConfig) cgroup.Limits {
	over := sandbox.GetLinux().GetOverhead()
	memory := over.GetMemoryLimitInBytes()
	if memory <= 0 {
		memory = m.OverheadMemory
	}
	l := cgroup.Limits{
		Memory:     plus(c.GetMemoryLimitInBytes(), memory),
		MemorySwap: plus(c.GetMemorySwapLimitInBytes(), memory),
		CPUShares:  uint64(max(c.GetCpuShares(), 0)),
		CPUQuota:   c.GetCpuQuota(),
		CPUPeriod:  uint64(max(c.GetCpuPeriod(), 0)),
		CPUSetCPUs: c.GetCpusetCpus(),
		CPUSetMems: c.GetCpusetMems(),
		Unified:    c.GetUnified(),
	}
	if l.CPUQuota > 0 && over.GetCpuQuota() > 0 && over.GetCpuPeriod() == c.GetCpuPeriod() {
		l.CPUQuota += over.GetCpuQuota()
	}
	for _, h := range c.GetHugepageLimits() {
		l.HugepageLimits = append(l.HugepageLimits, cgroup.HugepageLimit{PageSize: h.GetPageSize(), Bytes: h.GetLimit()})
	}
	return l
}

// plus widens a limit; 0 (none) and -1 (lifted) stay what they are.
func plus(limit, more int64) int64 {
	if limit <= 0 {
		return limit
	}
	if limit > math.MaxInt64-more {
		return math.MaxInt64
	}
	return limit + more
}
