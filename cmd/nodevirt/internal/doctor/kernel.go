package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/config"
)

// checkKernelNetwork creates what each VM's pod gets, in a network namespace
// that ends with the check. A list of modules would not show it, since modules
// may be built in or be loaded on demand.
func checkKernelNetwork(ctx context.Context, _ config.Config) Finding {
	made := make(chan Finding, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and the namespace with it.
		runtime.LockOSThread()
		made <- tryNetwork(ctx)
	}()
	return <-made
}

func tryNetwork(ctx context.Context) Finding {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fail("run doctor as root, or use a kernel with network namespaces (CONFIG_NET_NS)", "create a network namespace: %v", err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		return fail("see the kernel's log: dmesg", "open netlink in a network namespace: %v", err)
	}
	defer h.Close()
	const remedy = "load the modules: modprobe -a bridge tun nf_tables; or use a kernel that has them"
	if err := tryDevices(h); err != nil {
		return fail(remedy, "%v", err)
	}
	path, err := exec.LookPath("nft")
	if err != nil {
		return fail("install nftables", "cannot try nftables: nft: %v", notFound(err))
	}
	if err := tryNft(ctx, path); err != nil {
		return fail(remedy, "%v", err)
	}
	return ok("a bridge, a tap and nftables' bridge and inet families work in a network namespace")
}

func tryDevices(h *netlink.Handle) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "nodevirt-br"}}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("create a bridge: %w", err)
	}
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "nodevirt-tap"},
		Mode:      netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_VNET_HDR,
	}
	if err := h.LinkAdd(tap); err != nil {
		return fmt.Errorf("create a tap device: %w", err)
	}
	if err := h.LinkSetMaster(tap, bridge); err != nil {
		return fmt.Errorf("attach the tap to the bridge: %w", err)
	}
	return nil
}

// rules are of the kinds that a VM's two tables have.
const rules = `table bridge nodevirt-try {
	chain in { type filter hook prerouting priority 0; ether saddr 02:00:00:00:00:01 drop; udp dport 67 drop; }
}
table inet nodevirt-try {
	chain in { type filter hook input priority 0; tcp dport 22 drop; }
}
`

func tryNft(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, path, "-f", "-")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(rules)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("load tables of nftables' bridge and inet families: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// checkCgroups looks for the controllers that limit VMs.
func checkCgroups(context.Context, config.Config) Finding {
	have, version, err := controllers()
	if err != nil {
		return fail("mount the cgroup file system: mount -t cgroup2 cgroup2 /sys/fs/cgroup", "%v", err)
	}
	var missing []string
	for _, name := range []string{"cpu", "memory"} {
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fail("remove cgroup_disable= from the kernel's command line, or use a kernel with CONFIG_CGROUP_SCHED and CONFIG_MEMCG",
			"cgroup %s does not have the controllers %s", version, strings.Join(missing, ", "))
	}
	for _, name := range []string{"cpuset", "pids"} {
		if !slices.Contains(have, name) {
			return warn("use a kernel with CONFIG_CPUSETS and CONFIG_CGROUP_PIDS, if other pods need the controller",
				"cgroup %s does not have the controller %s", version, name)
		}
	}
	return ok("%s with %s", version, strings.Join(have, ", "))
}

func controllers() (have []string, version string, err error) {
	if cgroups.IsCgroup2UnifiedMode() {
		version = "v2"
		text, err := cgroups.ReadFile("/sys/fs/cgroup", "cgroup.controllers")
		if err != nil {
			return nil, version, fmt.Errorf("read the controllers of cgroup v2: %w", err)
		}
		have = strings.Fields(text)
	} else {
		version = "v1"
		mounts, err := cgroups.GetCgroupMounts(false)
		if err != nil {
			return nil, version, fmt.Errorf("find the cgroup file systems: %w", err)
		}
		for _, m := range mounts {
			have = append(have, m.Subsystems...)
		}
	}
	have = slices.DeleteFunc(have, func(name string) bool { return name == "systemd" }) // a hierarchy, not a controller
	slices.Sort(have)
	return slices.Compact(have), version, nil
}
