package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/shim/hooks/wire"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxPart bounds each file of cloud-init's that a sidecar makes, in bytes. It is the
// bound of a Secret.
const maxPart = 1 << 20

// cloudInitData is KubeVirt's encoding of a cloud-init disk's content.
type cloudInitData struct {
	DataSource          string
	NoCloudMetaData     map[string]any
	ConfigDriveMetaData map[string]any
	UserData            string
	NetworkData         string
	DevicesData         json.RawMessage // not used
	VolumeName          string
}

// cloudInit is the content of a cloud-init disk and how a sidecar gets it.
type cloudInit struct {
	seed     vmspec.Seed
	source   vmspec.Source
	metaData map[string]any // nil if it is no mapping
	whole    []byte         // a cloudInitData
	old      []byte         // what sidecars got before there was cloudInitData
}

func newCloudInit(source vmspec.Source, seed vmspec.Seed) (*cloudInit, error) {
	c := &cloudInit{seed: seed, source: source}
	if err := yaml.Unmarshal([]byte(seed.MetaData), &c.metaData); err != nil {
		c.metaData = nil
	}
	data := cloudInitData{DataSource: "noCloud", UserData: seed.UserData, NetworkData: seed.NetworkConfig}
	*c.metaOf(&data) = keysByNumber(c.metaData)
	if source == vmspec.SourceConfigDrive {
		data.DataSource = "configDrive"
	}
	var err, oldErr error
	c.whole, err = json.Marshal(data)
	c.old, oldErr = json.Marshal(kubevirt.CloudInitNoCloudSource{UserData: seed.UserData, NetworkData: seed.NetworkConfig})
	return c, errors.Join(err, oldErr)
}

// metaOf returns the field that the data source has.
func (c *cloudInit) metaOf(data *cloudInitData) *map[string]any {
	if c.source == vmspec.SourceConfigDrive {
		return &data.ConfigDriveMetaData
	}
	return &data.NoCloudMetaData
}

// keysByNumber returns meta data with SSH keys as KubeVirt's type has them: by the texts
// of numbers, not in a list. cloud-init takes both.
func keysByNumber(all map[string]any) map[string]any {
	if all == nil {
		return nil
	}
	changed := map[string]any{}
	for name, value := range all {
		if list, ok := value.([]any); ok && name == "public-keys" {
			byNumber := map[string]any{}
			for i, key := range list {
				byNumber[strconv.Itoa(i)] = key
			}
			value = byNumber
		}
		changed[name] = value
	}
	return changed
}

// merge returns the content with what a sidecar answered. Meta data that the answer leaves
// out stays: the types of sidecars do not have all of it.
func (c *cloudInit) merge(reply *wire.PreCloudInitIsoResult) (vmspec.Seed, error) {
	seed := c.seed
	var data cloudInitData
	if text := reply.GetCloudInitData(); len(text) > 0 {
		if err := json.Unmarshal(text, &data); err != nil {
			return seed, fmt.Errorf("decode cloudInitData: %w", err)
		}
	}
	var old kubevirt.CloudInitNoCloudSource
	if text := reply.GetCloudInitNoCloudSource(); len(text) > 0 {
		if err := json.Unmarshal(text, &old); err != nil {
			return seed, fmt.Errorf("decode cloudInitNoCloudSource: %w", err)
		}
	}
	switch {
	case data.UserData != "" || data.NetworkData != "":
		seed.UserData, seed.NetworkConfig = data.UserData, data.NetworkData
	case old.UserData != "" || old.NetworkData != "":
		seed.UserData, seed.NetworkConfig = old.UserData, old.NetworkData
	case len(reply.GetCloudInitData())+len(reply.GetCloudInitNoCloudSource()) == 0:
		return seed, errors.New("the answer is empty")
	}
	if err := c.mergeMeta(&seed, *c.metaOf(&data)); err != nil {
		return seed, err
	}
	for name, part := range map[string]string{"user data": seed.UserData, "network data": seed.NetworkConfig, "meta data": seed.MetaData} {
		if len(part) > maxPart || !utf8.ValidString(part) {
			return seed, fmt.Errorf("the %s has %d bytes or is not UTF-8 text; at most %d are allowed", name, len(part), maxPart)
		}
	}
	return seed, nil
}

func (c *cloudInit) mergeMeta(seed *vmspec.Seed, reply map[string]any) error {
	if c.metaData == nil {
		return nil
	}
	changed, sent := false, keysByNumber(c.metaData)
	merged := keysByNumber(c.metaData)
	for name, value := range reply {
		if !reflect.DeepEqual(sent[name], value) {
			merged[name], changed = value, true
		}
	}
	if !changed {
		return nil
	}
	text, err := json.Marshal(merged) // which is YAML, too
	if err != nil {
		return fmt.Errorf("encode meta data: %w", err)
	}
	seed.MetaData = string(text) + "\n"
	return nil
}
