package config_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
)

// TestCheckBindings: an instance has the network binding plug-ins that the object registers.
func TestCheckBindings(t *testing.T) {
	spec := func(name string) *kubevirt.VirtualMachineInstanceSpec {
		s := &kubevirt.VirtualMachineInstanceSpec{Networks: []kubevirt.Network{*kubevirt.DefaultPodNetwork()}}
		s.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", Binding: &kubevirt.PluginBinding{Name: name}}}
		return s
	}
	registered := config.Config{Given: kubevirt.KubeVirtConfiguration{NetworkConfiguration: &kubevirt.NetworkConfiguration{
		PermitBridgeInterfaceOnPodNetwork: new(false),
		Binding: map[string]kubevirt.InterfaceBindingPlugin{
			"macvtap": {DomainAttachmentType: kubevirt.Tap},
			"l2":      {DomainAttachmentType: kubevirt.ManagedTap, SidecarImage: "example.com/l2:1"},
		},
	}}}
	switched := registered
	switched.Given.DeveloperConfiguration = &kubevirt.DeveloperConfiguration{FeatureGates: []string{config.GateSidecar}}
	for _, tt := range []struct {
		config     config.Config
		name, want string
	}{
		{registered, "macvtap", ""},
		{registered, "passt", "is not registered in configuration.network.binding of the object KubeVirt, which has l2, macvtap"},
		{registered, "l2", "the Sidecar feature gate is not enabled"},
		{switched, "l2", ""},
		{config.Config{}, "macvtap", "no network binding plug-in is registered"},
	} {
		problems := tt.config.Check(field.NewPath("spec"), spec(tt.name))
		switch {
		case tt.want == "" && len(problems) > 0:
			t.Errorf("%s: %v", tt.name, problems)
		case tt.want == "":
		case len(problems) != 1 || problems[0].Field != "spec.domain.devices.interfaces[0].binding.name" || !strings.Contains(problems[0].Error(), tt.want):
			t.Errorf("%s: %v, want %s", tt.name, problems, tt.want)
		}
	}
}
