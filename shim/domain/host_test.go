package domain

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// hostXML is what libvirt 9.0 said of a node, shortened.
func hostXML(t *testing.T, a string) capabilityXML {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", "host", name+".xml"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return capabilityXML{host: read("host"), domain: read(a + "-domain"), cpu: read("tcg-cpu")}
}

func TestHostCapabilities(t *testing.T) {
	tcg, err := hostXML(t, "tcg").read(TCG, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"microvm", "pc", "pc-i440fx-1.7", "pc-i440fx-7.2", "pc-q35-5.2", "pc-q35-7.2", "q35"}; !slices.Equal(tcg.Machines, want) {
		t.Errorf("machines: %v", tcg.Machines)
	}
	if want := []string{"pc-i440fx-1.7"}; !slices.Equal(tcg.Deprecated, want) {
		t.Errorf("deprecated machines: %v", tcg.Deprecated)
	}
	if want := []string{"amd64"}; !slices.Equal(tcg.Architectures, want) {
		t.Errorf("architectures: %v", tcg.Architectures)
	}
	if tcg.HostModel != "EPYC" || tcg.Vendor != "AMD" || !slices.Contains(tcg.HostFeatures, "umip") || slices.Contains(tcg.HostFeatures, "misalignsse") {
		t.Errorf("host-model: %s of %s with %v", tcg.HostModel, tcg.Vendor, tcg.HostFeatures)
	}
	if !slices.Contains(tcg.Models, "Nehalem") || slices.Contains(tcg.Models, "EPYC-Milan") || !slices.Contains(tcg.KnownModels, "EPYC-Milan") {
		t.Errorf("models: %v of %v", tcg.Models, tcg.KnownModels)
	}
	if !slices.Contains(tcg.Features, "avx2") || slices.Contains(tcg.Features, "misalignsse") || !slices.IsSorted(tcg.Features) {
		t.Errorf("features: %v", tcg.Features)
	}
	// TCG has neither: a guest does without enlightenments.
	if len(tcg.Hyperv) > 0 || tcg.TSC != 0 {
		t.Errorf("with TCG: %v, %d Hz", tcg.Hyperv, tcg.TSC)
	}
	kvm, err := hostXML(t, "kvm").read(KVM, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"relaxed", "spinlocks", "stimer", "synic", "vendor_id", "vpindex"}; !slices.Equal(kvm.Hyperv, want) {
		t.Errorf("hyperv: %v", kvm.Hyperv)
	}
	if kvm.TSC != 2_300_000_000 || kvm.TSCScaling {
		t.Errorf("TSC: %d Hz, scaling %v", kvm.TSC, kvm.TSCScaling)
	}
	if _, err := (capabilityXML{host: "<capabilities/>", domain: "<"}).read(KVM, nil); err == nil {
		t.Error("half an element was read")
	}
}

// TestHostModelCPU: libvirt gets the CPU of host-model as a definition; there may be none.
func TestHostModelCPU(t *testing.T) {
	text, err := hostModelCPU(hostXML(t, "tcg").domain)
	if err != nil || text == "" {
		t.Fatalf("%q, %v", text, err)
	}
	for domain, fails := range map[string]bool{"<domainCapabilities/>": false, "": true} {
		if text, err := hostModelCPU(domain); text != "" || (err != nil) != fails {
			t.Errorf("%q: %q, %v", domain, text, err)
		}
	}
}

// TestHost asks a real libvirtd.
func TestHost(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	caps, err := d.Host.Capabilities(ctx, TCG, "/usr/bin/qemu-system-x86_64", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(caps.Machines, "q35") || !slices.Contains(caps.Models, "qemu64") ||
		!slices.Contains(caps.Features, "sse2") || caps.HostModel == "" || len(caps.KnownModels) <= len(caps.Models) {
		t.Errorf("%+v", caps)
	}
}

// TestModelsStart: of the CPU models that a real QEMU calls usable, those start that the node offers, and no other.
func TestModelsStart(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	offered, err := d.Host.Capabilities(t.Context(), TCG, plainDomain().Emulator, nil)
	assert.NilError(t, err)
	again, err := d.Host.Capabilities(t.Context(), TCG, plainDomain().Emulator, nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, again, offered)
	text, err := call(t.Context(), d.Host.conn, "read", "libvirt", func(c *libvirt.Connect) (string, error) {
		return c.GetDomainCapabilities(plainDomain().Emulator, "x86_64", "q35", "qemu", 0)
	})
	assert.NilError(t, err)
	usable, err := capabilityXML{host: "<capabilities><host><cpu/></host></capabilities>", domain: text}.read(TCG, nil)
	assert.NilError(t, err)
	assert.Assert(t, len(usable.Models) > len(offered.Models), "%v, %v", usable.Models, offered.Models)
	for _, model := range usable.Models {
		t.Run(model, func(t *testing.T) {
			g := newGuest(t)
			g.Spec.CPU.Model = model
			define(t, d, g)
			_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
			assert.Equal(t, err == nil, slices.Contains(offered.Models, model), "%v", err)
		})
	}
}

// TestEncryption reads what libvirt lists of ways to encrypt memory, as libvirt 9.0 and newer ones write it.
func TestEncryption(t *testing.T) {
	const (
		sev   = `<sev supported='yes'><cbitpos>51</cbitpos><reducedPhysBits>1</reducedPhysBits><maxGuests>10</maxGuests><maxESGuests>0</maxESGuests></sev>`
		es    = `<sev supported='yes'><cbitpos>47</cbitpos><reducedPhysBits>5</reducedPhysBits><maxGuests>10</maxGuests><maxESGuests>499</maxESGuests></sev>`
		kinds = `<launchSecurity supported='yes'><enum name='sectype'><value>sev</value><value>sev-snp</value></enum></launchSecurity>`
		tdx   = `<launchSecurity supported='yes'><enum name='sectype'><value>tdx</value></enum></launchSecurity>`
	)
	for features, want := range map[string]Encryption{
		"":                              {},
		`<sev supported='no'/>`:         {},
		`<tdx supported='yes'/>`:        {TDX: true},
		tdx:                             {TDX: true},
		sev:                             {SEV: true, CBitPos: 51, ReducedPhysBits: 1},
		es:                              {SEV: true, SEVES: true, CBitPos: 47, ReducedPhysBits: 5},
		es + kinds:                      {SEV: true, SEVES: true, SNP: true, CBitPos: 47, ReducedPhysBits: 5},
		sev + kinds:                     {SEV: true, CBitPos: 51, ReducedPhysBits: 1},
		`<sev supported='no'/>` + kinds: {},
	} {
		text := capabilityXML{host: "<capabilities><host><cpu/></host></capabilities>", domain: "<domainCapabilities><features>" + features + "</features></domainCapabilities>"}
		caps, err := text.read(KVM, nil)
		if err != nil || caps.Encryption != want {
			t.Errorf("%s: %+v, %v, want %+v", features, caps.Encryption, err, want)
		}
		if caps, err = text.read(TCG, nil); err != nil || caps.Encryption != (Encryption{}) {
			t.Errorf("TCG with %s: %+v, %v", features, caps.Encryption, err)
		}
	}
}

func TestOffers(t *testing.T) {
	for name, tt := range map[string]struct {
		asked vmspec.LaunchSecurity
		has   Encryption
	}{
		"SEV":     {vmspec.LaunchSecurity{Encryption: vmspec.EncryptionSEV}, Encryption{SEV: true}},
		"SEV-ES":  {vmspec.LaunchSecurity{Encryption: vmspec.EncryptionSEV, EncryptedState: true}, Encryption{SEVES: true}},
		"SEV-SNP": {vmspec.LaunchSecurity{Encryption: vmspec.EncryptionSNP}, Encryption{SNP: true}},
		"TDX":     {vmspec.LaunchSecurity{Encryption: vmspec.EncryptionTDX}, Encryption{TDX: true}},
	} {
		if err := tt.has.Offers(tt.asked); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rest := Encryption{SEV: !tt.has.SEV, SEVES: !tt.has.SEVES, SNP: !tt.has.SNP, TDX: !tt.has.TDX}
		if err := rest.Offers(tt.asked); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "lists no "+name+";") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
