package csi

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar announces to a kubelet where the node's part of the driver serves.
type registrar struct {
	pluginregistration.UnimplementedRegistrationServer

	endpoint string
	log      *slog.Logger
}

func registration(o Options) *grpc.Server {
	s := grpc.NewServer()
	pluginregistration.RegisterRegistrationServer(s, &registrar{endpoint: o.Endpoint, log: o.Log})
	return s
}

// GetInfo is the kubelet's first call.
func (r *registrar) GetInfo(context.Context, *pluginregistration.InfoRequest) (*pluginregistration.PluginInfo, error) {
	return &pluginregistration.PluginInfo{
		Type: pluginregistration.CSIPlugin, Name: Name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus is its second one.
func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, s *pluginregistration.RegistrationStatus,
) (*pluginregistration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.log.Info("the kubelet registered the driver")
	} else {
		r.log.Error("the kubelet refused the driver", "error", s.GetError())
	}
	return &pluginregistration.RegistrationStatusResponse{}, nil
}
