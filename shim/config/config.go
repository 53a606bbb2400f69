// Package config reads the shim's config file. It owns the fields, their defaults
// and their checks. It reads nothing else on the node, and leaves to other packages
// what the fields mean.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// Config is the shim's config. [Default] returns the defaults of its fields.
type Config struct {
	// Listen is the path of the unix socket that serves CRI.
	Listen string `toml:"listen"`
	// Root holds records and overlays, and must survive a reboot. Run holds sockets.
	Root string `toml:"root"`
	Run  string `toml:"run"`
	// Handler is the runtime handler of VMs' sandboxes.
	Handler string `toml:"handler"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `toml:"log_level"`

	Containerd Containerd `toml:"containerd"`
	Libvirt    Libvirt    `toml:"libvirt"`
	VM         VM         `toml:"vm"`
	Disks      Disks      `toml:"disks"`
	ISCSI      ISCSI      `toml:"iscsi"`
	Stream     Stream     `toml:"stream"`
	Tools      Tools      `toml:"tools"`
	Metrics    Metrics    `toml:"metrics"`
	Tracing    Tracing    `toml:"tracing"`
	Kubernetes Kubernetes `toml:"kubernetes"`
}

// Containerd configures the connection to containerd.
type Containerd struct {
	// Address is the path of its unix socket.
	Address string `toml:"address"`
	// Namespace is that of its CRI plug-in.
	Namespace   string `toml:"namespace"`
	Snapshotter string `toml:"snapshotter"`
	// SandboxHandler is the handler with which containerd runs VMs' sandboxes;
	// empty is containerd's default.
	SandboxHandler string `toml:"sandbox_handler"`
}

// Libvirt configures the connection to libvirtd.
type Libvirt struct {
	URI string `toml:"uri"`
	// Run is libvirtd's run folder, Log the folder of its domains' logs.
	Run string `toml:"run"`
	Log string `toml:"log"`
}

// VM configures how VMs run.
type VM struct {
	// Accelerator is auto, kvm or tcg.
	Accelerator string `toml:"accelerator"`
	// Emulator is the path of QEMU.
	Emulator string `toml:"emulator"`
	// Foreign are the paths of QEMU for guests of other architectures than the node's, by their names.
	// The node runs no guests of an architecture whose QEMU is missing.
	Foreign map[string]string `toml:"foreign_emulators"`
	// Landlock is auto, require or off: whether the kernel limits QEMU to its VM's files.
	Landlock string `toml:"landlock"`
	// OverheadMemory is the memory that QEMU may use beside the guest's RAM if the
	// RuntimeClass sets no overhead, as a Kubernetes quantity.
	OverheadMemory Quantity `toml:"overhead_memory"`
	// LogLimit is the size at which the log of a console is rotated, as a
	// Kubernetes quantity. 0 is no limit.
	LogLimit Quantity `toml:"log_limit"`
	// MaxDiskSize bounds the virtual size of an image's disk.
	MaxDiskSize Quantity `toml:"max_disk_size"`
	// UIDBase is the first of UIDCount user IDs that nothing else on the node uses.
	// Each VM gets its own.
	UIDBase  uint32 `toml:"uid_base"`
	UIDCount uint32 `toml:"uid_count"`
	// ResolvConf is the file with the DNS settings of pods that have none.
	ResolvConf string `toml:"resolv_conf"`
	// PodNetworkMAC lets VMs choose the MAC address of a bridged card on the pod
	// network, where it may be another pod's.
	PodNetworkMAC bool `toml:"pod_network_mac"`
	// HookSidecars lets VMs have hook sidecars, which change what the guest sees.
	HookSidecars bool `toml:"hook_sidecars"`
}

// The values of VM.Landlock.
const (
	// LandlockAuto uses Landlock if the kernel supports it, LandlockRequire keeps the shim
	// from starting otherwise, and LandlockOff does not use it.
	LandlockAuto    = "auto"
	LandlockRequire = "require"
	LandlockOff     = "off"
)

// Disks configures how registry disks reach their VMs.
type Disks struct {
	// Mode is the default for pods that set none: file, raw or iscsi.
	Mode string `toml:"mode"`
	// CacheLimit bounds the expanded disks that are kept for clones, as a
	// Kubernetes quantity. 0 keeps none.
	CacheLimit Quantity `toml:"cache_limit"`
	// GiveUp is how long the expansion of a disk continues without a call that requests it.
	GiveUp Duration `toml:"give_up"`
	// Network lets VMs have PVCs that QEMU opens over the network.
	Network bool `toml:"network"`
	// CephNetworks are the networks of Ceph's monitors and OSDs. VMs with disks there
	// reach them.
	CephNetworks []netip.Prefix `toml:"ceph_networks"`
	// Reserve is the space that expanding a disk leaves free, as a Kubernetes quantity.
	Reserve Quantity `toml:"reserve"`
}

// ISCSI configures the node's tgtd and its portal.
type ISCSI struct {
	// Socket is tgtd's TGT_IPC_SOCKET.
	Socket string `toml:"socket"`
	// Address and Port are those of the portal, which initiators connect to.
	Address string `toml:"address"`
	Port    uint32 `toml:"port"`
	// Timeout is how long a disk may not answer before its guest gets I/O errors; 0 is forever.
	Timeout Duration `toml:"timeout"`
}

// Portal returns the address that initiators connect to.
func (i ISCSI) Portal() (netip.AddrPort, error) {
	a, err := netip.ParseAddr(i.Address)
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("iscsi.address: %q is no address of this node: have 127.0.0.1 for its own VMs, "+
			"or the address by which other nodes reach it", i.Address)
	}
	if i.Port == 0 || i.Port > 65535 {
		return netip.AddrPort{}, fmt.Errorf("iscsi.port: %d is not between 1 and 65535", i.Port)
	}
	return netip.AddrPortFrom(a, uint16(i.Port)), nil
}

// Stream configures the streaming server for attach, exec and port-forward.
type Stream struct {
	// Address is HOST:PORT on loopback; port 0 selects a free port.
	Address string `toml:"address"`
	// IdleTimeout closes a stream without traffic for that long; 0 is never.
	IdleTimeout Duration `toml:"idle_timeout"`
}

// Tools are paths of programs, or names to look up in PATH.
type Tools struct {
	Dnsmasq       string `toml:"dnsmasq"`
	QemuImg       string `toml:"qemu_img"`
	StorageDaemon string `toml:"storage_daemon"`
	Swtpm         string `toml:"swtpm"`
}

// Metrics configures the endpoint of Prometheus metrics.
type Metrics struct {
	// Address is the path of a unix socket, or an address and port on loopback;
	// empty disables the endpoint.
	Address string `toml:"address"`
}

// Tracing configures the export of traces.
type Tracing struct {
	// Endpoint is the collector's OTLP receiver for gRPC, HOST:PORT; empty disables tracing.
	Endpoint string `toml:"endpoint"`
	// Ratio is the part of traces that are exported, 0 to 1. A kubelet that traces decides for its calls.
	Ratio float64 `toml:"ratio"`
	// Insecure connects without TLS. CA is the path of the CA's certificates in PEM, empty for the system's.
	Insecure bool   `toml:"insecure"`
	CA       string `toml:"ca"`
}

// Options returns the settings for package tracing.
func (t Tracing) Options() tracing.Options {
	return tracing.Options{Endpoint: t.Endpoint, Ratio: t.Ratio, Insecure: t.Insecure, CA: t.CA}
}

// Kubernetes configures the connection to the API server.
type Kubernetes struct {
	// Kubeconfig is the path of the kubelet's kubeconfig, with which the shim
	// writes pods' statuses; empty disables that.
	Kubeconfig string `toml:"kubeconfig"`
}

// Default returns the defaults, which suit a node with Debian's paths.
func Default() Config {
	return Config{
		Listen:  "/run/nodevirt/nodevirt.sock",
		Root:    "/var/lib/nodevirt",
		Run:     "/run/nodevirt",
		Handler: "vm",
		Containerd: Containerd{
			Address:     "/run/containerd/containerd.sock",
			Namespace:   "k8s.io",
			Snapshotter: "overlayfs",
		},
		Libvirt: Libvirt{URI: "qemu:///system", Run: "/run/libvirt", Log: "/var/log/libvirt/qemu"},
		VM: VM{
			Accelerator:    "auto",
			Emulator:       emulators()[runtime.GOARCH],
			Foreign:        foreign(),
			Landlock:       LandlockAuto,
			OverheadMemory: 256 << 20,
			LogLimit:       128 << 20,
			// The largest file of ext4 with 4 KiB blocks, where overlays are.
			MaxDiskSize: 16 << 40,
			// Above the ranges of systemd, subuid and Kubernetes' user namespaces.
			UIDBase:    1_900_000_000,
			UIDCount:   65536,
			ResolvConf: "/etc/resolv.conf",
		},
		Disks:   Disks{Mode: string(vmspec.ModeFile), CephNetworks: []netip.Prefix{}, CacheLimit: 64 << 30, GiveUp: Duration(10 * time.Minute), Reserve: 1 << 30},
		Stream:  Stream{Address: "127.0.0.1:0", IdleTimeout: Duration(4 * time.Hour)}, // as containerd's
		ISCSI:   ISCSI{Socket: "/run/nodevirt-tgtd/tgtd", Address: "127.0.0.1", Port: 3260, Timeout: Duration(30 * time.Second)},
		Tools:   Tools{Dnsmasq: "dnsmasq", QemuImg: "qemu-img", StorageDaemon: "qemu-storage-daemon", Swtpm: "swtpm"},
		Metrics: Metrics{Address: "/run/nodevirt/metrics.sock"},
		Tracing: Tracing{Ratio: 1},
	}
}

// emulators returns Debian's paths of QEMU, by guests' architectures.
func emulators() map[string]string {
	return map[string]string{vmspec.AMD64: "/usr/bin/qemu-system-x86_64", vmspec.ARM64: "/usr/bin/qemu-system-aarch64"}
}

func foreign() map[string]string {
	all := emulators()
	delete(all, runtime.GOARCH)
	return all
}

// Load reads a config file over the defaults, or only the defaults if path is
// empty, and applies override, such as a command's flags. It returns an error that
// names each unknown field or invalid value, or QEMU's program if the shim could not find its guests.
func Load(path string, override func(*Config) error) (Config, error) {
	c := Default()
	if path != "" {
		if err := c.read(path); err != nil {
			return c, err
		}
	}
	if err := override(&c); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if err := errors.Join(c.check(), c.checkPrograms()); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	return c, nil
}

func (c *Config) read(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the config file: %w", err)
	}
	return c.decode(path, data)
}

// Parse returns the built-in values with those of a config file's text over them. The path is for errors. The file may be
// another node's, so no program is looked at.
func Parse(path string, text []byte) (Config, error) {
	c := Default()
	if err := c.decode(path, text); err != nil {
		return c, err
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("config file %s: %w", path, err)
	}
	return c, nil
}

func (c *Config) decode(path string, data []byte) error {
	d := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
			return fmt.Errorf("config file %s has fields that there aren't:\n%s", path, unknown.String())
		}
		if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
			return fmt.Errorf("config file %s:\n%s", path, wrong.String()) // with the line
		}
		return fmt.Errorf("config file %s: %w", path, err)
	}
	return nil
}
