// Package bindingplugin is a CNI plug-in that makes in a pod what the network binding plug-ins of a cluster
// make: an interface, and by its mode a tap beside it, or in its place a macvtap.
//
// A test's own program is the plug-in: its TestMain calls [Main] first. The real Multus runs the plug-in for
// each network of a pod.
package bindingplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Config is the configuration of the plug-in for one network.
type Config struct {
	CNIVersion string `json:"cniVersion"`
	// Name is the network's.
	Name string `json:"name"`
	// Type is the plug-in's name.
	Type string `json:"type"`
	// Bridge is the node's, which the plug-in makes if it is missing.
	Bridge string `json:"bridge"`
	// Mode is tap, macvtap or veth.
	Mode string `json:"mode"`
	// Interface is the name in the pod, which Multus takes from the pod's annotation in a cluster.
	Interface string `json:"interface"`
	// MAC is the address of a macvtap, which the pod's annotation has, too; by default the kernel's choice.
	MAC string `json:"mac,omitempty"`
}

// Main runs the plug-in and ends the process if CNI started it. Otherwise it returns.
func Main() {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(run())
	}
}

// run returns the exit code of the process.
func run() int {
	var p Config
	err := json.NewDecoder(os.Stdin).Decode(&p)
	result := map[string]any{"cniVersion": p.CNIVersion}
	switch command := os.Getenv("CNI_COMMAND"); {
	case err != nil:
	case command == "VERSION":
		result = map[string]any{"cniVersion": "0.4.0", "supportedVersions": []string{"0.4.0"}}
	case command == "ADD":
		err = p.add(os.Getenv("CNI_NETNS"))
		result["interfaces"] = []map[string]string{{"name": p.Interface, "sandbox": os.Getenv("CNI_NETNS")}}
	case command == "DEL":
		err = p.remove()
	}
	if err != nil {
		result = map[string]any{"cniVersion": p.CNIVersion, "code": 100, "msg": err.Error()}
	}
	if json.NewEncoder(os.Stdout).Encode(result) != nil || err != nil {
		return 1
	}
	return 0
}

// outer is the name of the node's end of the pod's wire.
func (p Config) outer() string { return "pl" + p.Interface[3:9] + os.Getenv("CNI_CONTAINERID")[:6] }

// inner is the other end's before it is in the pod, or the parent of a macvtap.
func (p Config) inner() string { return "pi" + p.Interface[3:9] + os.Getenv("CNI_CONTAINERID")[:6] }

func (p Config) add(sandbox string) error {
	bridge, err := p.nodesBridge()
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = p.outer(), bridge.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: p.inner()}); err != nil {
		return fmt.Errorf("make a wire: %w", err)
	}
	outer, err := netlink.LinkByName(p.outer())
	if err != nil {
		return err
	}
	device, err := netlink.LinkByName(p.inner())
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(outer); err != nil {
		return err
	}
	if p.Mode == "macvtap" {
		if err := netlink.LinkSetUp(device); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "pm"+p.inner()[2:], device.Attrs().Index
		if p.MAC != "" {
			if attrs.HardwareAddr, err = net.ParseMAC(p.MAC); err != nil {
				return err
			}
		}
		tap := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}}
		if err := netlink.LinkAdd(tap); err != nil {
			return fmt.Errorf("make a macvtap: %w", err)
		}
		if device, err = netlink.LinkByName(attrs.Name); err != nil {
			return err
		}
	}
	ns, err := netns.GetFromPath(sandbox)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := netlink.LinkSetNsFd(device, int(ns)); err != nil {
		return fmt.Errorf("move %s into the pod: %w", device.Attrs().Name, err)
	}
	runtime.LockOSThread() // the process ends on this thread
	if err := netns.Set(ns); err != nil {
		return err
	}
	return p.inPod(device.Attrs().Name)
}

func (p Config) nodesBridge() (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !os.IsExist(err) {
		return nil, fmt.Errorf("make bridge %s: %w", p.Bridge, err)
	}
	bridge, err := netlink.LinkByName(p.Bridge)
	if err != nil {
		return nil, err
	}
	return bridge, netlink.LinkSetUp(bridge)
}

// inPod names the device in the pod, and joins it with a tap if the mode has one.
func (p Config) inPod(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetName(link, p.Interface), netlink.LinkSetUp(link)); err != nil || p.Mode != "tap" {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "plug0"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	attrs = netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = "tap"+p.Interface[3:], bridge.Attrs().Index
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("make a tap: %w", err)
	}
	made, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetMaster(made, bridge), netlink.LinkSetMaster(link, bridge),
		netlink.LinkSetUp(made), netlink.LinkSetUp(bridge))
}

// remove removes what is outside the pod, whose namespace may be gone.
func (p Config) remove() error {
	link, err := netlink.LinkByName(p.outer())
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}
