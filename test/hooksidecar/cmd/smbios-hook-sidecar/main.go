// Command smbios-hook-sidecar is the sidecar of a network binding plug-in in the tests of clusters: it names a
// manufacturer of the board and the VM in a domain's SMBIOS fields, and logs its calls.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	kubevirt "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hooks/wire"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/hooksidecar"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "smbios-hook-sidecar:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := vmspec.HooksPath + "/smbios.sock"
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // a container that was restarted
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	return hooksidecar.New(hooksidecar.Sidecar{
		Versions:       []string{"v1alpha3"},
		Points:         []*wire.HookPoint{{Name: wire.OnDefineDomain}},
		OnDefineDomain: onDefineDomain,
	}).Serve(listener)
}

func onDefineDomain(_ context.Context, in *wire.OnDefineDomainParams) (*wire.OnDefineDomainResult, error) {
	fmt.Println("OnDefineDomain method has been called")
	var vmi kubevirt.VirtualMachineInstance
	if err := json.Unmarshal(in.GetVmi(), &vmi); err != nil {
		return nil, fmt.Errorf("decode the instance: %w", err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(string(in.GetDomainXML())); err != nil {
		return nil, fmt.Errorf("decode the domain: %w", err)
	}
	if len(d.SysInfo) == 0 {
		d.SysInfo = []libvirtxml.DomainSysInfo{{SMBIOS: &libvirtxml.DomainSysInfoSMBIOS{}}}
	}
	d.OS.SMBios = &libvirtxml.DomainSMBios{Mode: "sysinfo"}
	d.SysInfo[0].SMBIOS.BaseBoard = []libvirtxml.DomainSysInfoBaseBoard{{Entry: []libvirtxml.DomainSysInfoEntry{
		{Name: "manufacturer", Value: "Plug-in"}, {Name: "product", Value: vmi.Name},
	}}}
	text, err := d.Marshal()
	return &wire.OnDefineDomainResult{DomainXML: []byte(text)}, err
}
