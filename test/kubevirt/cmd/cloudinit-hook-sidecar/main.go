// Command cloudinit-hook-sidecar is the hook sidecar that KubeVirt's suite expects in the image
// example-cloudinit-hook-sidecar: it replaces the user data of VMs, and logs its calls.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/nodevirt/nodevirt/shim/hooks/wire"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/hooksidecar"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cloudinit-hook-sidecar:", err)
		os.Exit(1)
	}
}

func run() error {
	version := flag.String("version", "v1alpha2", "`version` of the protocol")
	flag.Parse()
	socket := vmspec.HooksPath + "/cloudinit.sock"
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // a container that was restarted
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	return hooksidecar.New(hooksidecar.Sidecar{
		Versions: []string{*version},
		Points:   []*wire.HookPoint{{Name: wire.PreCloudInitIso}},
		Info: func(context.Context) error {
			fmt.Println("Info method has been called")
			return nil
		},
		PreCloudInitIso: preCloudInitIso,
	}).Serve(listener)
}

func preCloudInitIso(_ context.Context, in *wire.PreCloudInitIsoParams) (*wire.PreCloudInitIsoResult, error) {
	fmt.Println("PreCloudInitIso method has been called")
	var data map[string]any
	if err := json.Unmarshal(in.GetCloudInitData(), &data); err != nil {
		return nil, fmt.Errorf("decode cloudInitData: %w", err)
	}
	data["UserData"] = "#cloud-config\n"
	text, err := json.Marshal(data)
	return &wire.PreCloudInitIsoResult{CloudInitData: text}, err
}
