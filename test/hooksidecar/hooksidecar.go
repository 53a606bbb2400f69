// Package hooksidecar serves KubeVirt's protocol of hook sidecars, with what a test lets
// each hook answer. It owns the names of gRPC's services; package wire has the messages.
package hooksidecar

import (
	"context"

	"google.golang.org/grpc"

	"github.com/nodevirt/nodevirt/shim/hooks/wire"
)

// Sidecar is what a sidecar answers. A hook that is nil is not served.
type Sidecar struct {
	// Versions are those of the protocol that the sidecar speaks.
	Versions []string
	// Points are the hooks that it subscribes to.
	Points []*wire.HookPoint

	Info            func(context.Context) error
	OnDefineDomain  func(context.Context, *wire.OnDefineDomainParams) (*wire.OnDefineDomainResult, error)
	PreCloudInitIso func(context.Context, *wire.PreCloudInitIsoParams) (*wire.PreCloudInitIsoResult, error)
	Shutdown        func(context.Context) error
}

// New returns a server of a sidecar.
func New(s Sidecar) *grpc.Server {
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "kubevirt.hooks.info.Info",
		Methods: []grpc.MethodDesc{method("Info", func(ctx context.Context, _ *wire.InfoParams) (*wire.InfoResult, error) {
			if s.Info != nil {
				if err := s.Info(ctx); err != nil {
					return nil, err
				}
			}
			return &wire.InfoResult{Name: "test", Versions: s.Versions, HookPoints: s.Points}, nil
		})},
	}, nil)
	for _, version := range s.Versions {
		service := &grpc.ServiceDesc{ServiceName: wire.Service(version)}
		if s.OnDefineDomain != nil {
			service.Methods = append(service.Methods, method(wire.OnDefineDomain, s.OnDefineDomain))
		}
		if s.PreCloudInitIso != nil {
			service.Methods = append(service.Methods, method(wire.PreCloudInitIso, s.PreCloudInitIso))
		}
		if s.Shutdown != nil {
			service.Methods = append(service.Methods, method(wire.Shutdown, func(ctx context.Context, _ *wire.ShutdownParams) (*wire.ShutdownResult, error) {
				return &wire.ShutdownResult{}, s.Shutdown(ctx)
			}))
		}
		server.RegisterService(service, nil)
	}
	return server
}

func method[In, Out any](name string, do func(context.Context, *In) (*Out, error)) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(In)
			if err := decode(in); err != nil {
				return nil, err
			}
			return do(ctx, in)
		},
	}
}
