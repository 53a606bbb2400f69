package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// identity says what the driver is.
type identity struct {
	spec.UnimplementedIdentityServer

	controller bool
}

// GetPluginInfo names the driver.
func (*identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: Name, VendorVersion: version}, nil
}

// GetPluginCapabilities names the services beside this one.
func (i *identity) GetPluginCapabilities(
	context.Context, *spec.GetPluginCapabilitiesRequest,
) (*spec.GetPluginCapabilitiesResponse, error) {
	reply := &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{
		Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{
			Type: spec.PluginCapability_VolumeExpansion_ONLINE,
		}},
	}}}
	if i.controller {
		reply.Capabilities = append(reply.Capabilities, &spec.PluginCapability{
			Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{
				Type: spec.PluginCapability_Service_CONTROLLER_SERVICE,
			}},
		})
	}
	return reply, nil
}

// Probe says that the driver is ready, which it is as soon as it serves.
func (*identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}
