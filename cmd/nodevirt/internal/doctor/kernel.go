package doctor

import (
	"bytes"
	"context"
	"errors"
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

// checkKernelNetwork makes in a network namespace that goes with it what each
// VM's pod gets. Lists of modules would not tell: some are built in, some may
// not be loaded here.
func checkKernelNetwork(ctx context.Context, _ config.Config) Finding {
	made := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and the namespace with it.
		runtime.LockOSThread()
		made <- tryNetwork(ctx)
	}()
	if err := <-made; err != nil {
		return fail("load the module (modprobe bridge tun nf_tables nf_tables_bridge), or take a kernel that has it", "%v", err)
	}
	return ok("bridge, tap and nftables' bridge family work in a network namespace")
}

func tryNetwork(ctx context.Context) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		return fmt.Errorf("use a network namespace: %w", err)
	}
	defer h.Close()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "nodevirt-br"}}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "nodevirt-tap"},
		Mode:      netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_VNET_HDR,
	}
	if err := h.LinkAdd(tap); err != nil {
		return fmt.Errorf("make a tap device: %w", err)
	}
	if err := h.LinkSetMaster(tap, bridge); err != nil {
		return fmt.Errorf("put the tap into the bridge: %w", err)
	}
	return tryNft(ctx)
}

// rules are of the kinds that a VM's filter has.
const rules = `table bridge nodevirt-try {
	chain in { type filter hook prerouting priority 0; ether saddr 02:00:00:00:00:01 drop; udp dport 67 drop; }
}
`

func tryNft(ctx context.Context) error {
	path, err := exec.LookPath("nft")
	if err != nil {
		return errors.New("nftables can't be tried without nft")
	}
	cmd := exec.CommandContext(ctx, path, "-f", "-")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(rules)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("load a table of nftables' bridge family: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// checkCgroups looks for the controllers that limit a VM.
func checkCgroups(context.Context, config.Config) Finding {
	have, version, err := controllers()
	if err != nil {
		return fail("mount the cgroup file systems, as systemd does", "%v", err)
	}
	var missing []string
	for _, name := range []string{"cpu", "memory"} {
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fail("switch them on: kernel parameter cgroup_enable="+strings.Join(missing, ","),
			"cgroup %s has no controller %s", version, strings.Join(missing, ", "))
	}
	for _, name := range []string{"cpuset", "pids"} {
		if !slices.Contains(have, name) {
			return warn("switch it on, if pods use it", "cgroup %s has no controller %s", version, name)
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
	have = slices.DeleteFunc(have, func(name string) bool { return name == "systemd" }) // a tree, no controller
	slices.Sort(have)
	return slices.Compact(have), version, nil
}
