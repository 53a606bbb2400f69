//go:build cluster

package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a device plug-in with one device.
type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	resource string
	device   device
	// byCDI has the kubelet hand over the name of a CDI device in place of a variable and a device node.
	byCDI bool
}

// serve registers the plug-in with the kubelet, and serves until ctx is done.
func (p plugin) serve(ctx context.Context) error {
	if p.byCDI {
		err := writeCDI(pluginKind, p.device.name, map[string]any{
			"env": []string{p.variable() + "=" + p.device.address}, "deviceNodes": []any{map[string]any{"path": p.device.node()}},
		})
		if err != nil {
			return err
		}
	}
	socket := "nodevirt-" + p.device.name + ".sock"
	listener, err := net.Listen("unix", filepath.Join(deviceplugin.DevicePluginPath, socket))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("unix://"+deviceplugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = deviceplugin.NewRegistrationClient(conn).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: socket, ResourceName: p.resource,
	})
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("register %s: %w", p.resource, err)
	}
	return <-served
}

// GetDevicePluginOptions implements the kubelet's API.
func (plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return new(deviceplugin.DevicePluginOptions), nil
}

// ListAndWatch implements the kubelet's API.
func (p plugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: []*deviceplugin.Device{{ID: p.device.name, Health: deviceplugin.Healthy}}})
	if err == nil {
		<-stream.Context().Done()
	}
	return err
}

// Allocate implements the kubelet's API.
func (p plugin) Allocate(_ context.Context, in *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	out := new(deviceplugin.AllocateResponse)
	for range in.GetContainerRequests() {
		one := new(deviceplugin.ContainerAllocateResponse)
		if p.byCDI {
			one.CdiDevices = []*deviceplugin.CDIDevice{{Name: pluginKind + "=" + p.device.name}}
		} else {
			one.Envs = map[string]string{p.variable(): p.device.address}
			one.Devices = []*deviceplugin.DeviceSpec{{HostPath: p.device.node(), ContainerPath: p.device.node(), Permissions: "mrw"}}
		}
		out.ContainerResponses = append(out.ContainerResponses, one)
	}
	return out, nil
}

// variable is the name by which KubeVirt's device plug-ins pass addresses on.
func (p plugin) variable() string { return "PCI_RESOURCE_" + resourceVariable(p.resource) }

// pluginKind is the kind of the plug-in's CDI devices.
const pluginKind = "plugin.example.com/device"

// writeCDI writes a CDI file with one device.
func writeCDI(kind, name string, edits map[string]any) error {
	text, err := encode(map[string]any{
		"cdiVersion": "0.6.0", "kind": kind, "devices": []any{map[string]any{"name": name, "containerEdits": edits}},
	})
	if err != nil {
		return err
	}
	const folder = "/var/run/cdi"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(cdiFile(folder, name), []byte(text), 0o644)
}

func cdiFile(folder, name string) string { return filepath.Join(folder, "tests-"+name+".json") }
