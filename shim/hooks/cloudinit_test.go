package hooks_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/hooks/wire"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/hooksidecar"
)

// noCloudMeta is the meta data of KubeVirt's own sidecars, whose type drops what it does
// not have.
type noCloudMeta struct {
	InstanceID    string            `json:"instance-id"`
	LocalHostname string            `json:"local-hostname,omitempty"`
	PublicKeys    map[string]string `json:"public-keys,omitempty"`
}

type cloudInitData struct {
	DataSource          string
	NoCloudMetaData     *noCloudMeta
	ConfigDriveMetaData map[string]any
	UserData            string
	NetworkData         string
}

func TestPreCloudInitIso(t *testing.T) {
	seed := vmspec.Seed{
		UserData: "old", NetworkConfig: "net", MetaData: "instance-id: i\npublic-keys:\n- ssh-rsa A\nzone: b\n", UserDataFrom: "/from",
	}
	echo := func(change func(*cloudInitData)) func(*testing.T, *wire.PreCloudInitIsoParams) *wire.PreCloudInitIsoResult {
		return func(t *testing.T, in *wire.PreCloudInitIsoParams) *wire.PreCloudInitIsoResult {
			var d cloudInitData
			must(t, json.Unmarshal(in.GetCloudInitData(), &d))
			change(&d)
			text, err := json.Marshal(d)
			must(t, err)
			return &wire.PreCloudInitIsoResult{CloudInitData: text}
		}
	}
	fixed := func(whole, old string) func(*testing.T, *wire.PreCloudInitIsoParams) *wire.PreCloudInitIsoResult {
		return func(*testing.T, *wire.PreCloudInitIsoParams) *wire.PreCloudInitIsoResult {
			return &wire.PreCloudInitIsoResult{CloudInitData: []byte(whole), CloudInitNoCloudSource: []byte(old)}
		}
	}
	changed := func(change func(*vmspec.Seed)) vmspec.Seed {
		s := seed
		change(&s)
		return s
	}
	for name, tt := range map[string]struct {
		source vmspec.Source
		answer func(*testing.T, *wire.PreCloudInitIsoParams) *wire.PreCloudInitIsoResult
		want   vmspec.Seed
		words  string // of the error
	}{
		"user data": {answer: echo(func(d *cloudInitData) { d.UserData = "#cloud-config\n" }), want: changed(func(s *vmspec.Seed) { s.UserData = "#cloud-config\n" })},
		"nothing":   {answer: echo(func(*cloudInitData) {}), want: seed},
		"meta data": {
			answer: echo(func(d *cloudInitData) {
				if d.NoCloudMetaData.InstanceID != "i" || d.NoCloudMetaData.PublicKeys["0"] != "ssh-rsa A" || d.DataSource != "noCloud" {
					t.Errorf("it gets %+v", d.NoCloudMetaData)
				}
				d.NoCloudMetaData.LocalHostname = "h"
			}),
			want: changed(func(s *vmspec.Seed) {
				s.MetaData = `{"instance-id":"i","local-hostname":"h","public-keys":{"0":"ssh-rsa A"},"zone":"b"}` + "\n"
			}),
		},
		"a config drive": {
			source: vmspec.SourceConfigDrive,
			answer: echo(func(d *cloudInitData) {
				if d.DataSource != "configDrive" || d.NoCloudMetaData != nil {
					t.Errorf("it gets %+v", d)
				}
				d.ConfigDriveMetaData["zone"], d.NetworkData = "c", ""
			}),
			want: changed(func(s *vmspec.Seed) {
				s.MetaData, s.NetworkConfig = `{"instance-id":"i","public-keys":{"0":"ssh-rsa A"},"zone":"c"}`+"\n", ""
			}),
		},
		"the older field": {
			answer: fixed("", `{"userData": "new", "networkData": "n"}`),
			want:   changed(func(s *vmspec.Seed) { s.UserData, s.NetworkConfig = "new", "n" }),
		},
		"no answer":    {answer: fixed("", ""), words: "the answer is empty"},
		"no JSON":      {answer: fixed("{", ""), words: "decode cloudInitData"},
		"no older one": {answer: fixed("", "{"), words: "decode cloudInitNoCloudSource"},
		"too large":    {answer: fixed(`{"UserData": "`+strings.Repeat("x", 1<<20+1)+`"}`, ""), words: "the user data has 1048577 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, 1)
			serve(t, dir, 0, hooksidecar.Sidecar{
				Versions: []string{"v1alpha2"}, Points: points(0, wire.PreCloudInitIso),
				PreCloudInitIso: func(_ context.Context, in *wire.PreCloudInitIsoParams) (*wire.PreCloudInitIsoResult, error) {
					return tt.answer(t, in), nil
				},
			})
			source := tt.source
			if source == "" {
				source = vmspec.SourceSeed
			}
			got, err := on(limits()).PreCloudInitIso(t.Context(), vm(dir, 1), source, seed)
			if tt.words != "" {
				wantError(t, err, tt.words)
			} else if err != nil || got.UserData != tt.want.UserData || got.MetaData != tt.want.MetaData || got.NetworkConfig != tt.want.NetworkConfig {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}
