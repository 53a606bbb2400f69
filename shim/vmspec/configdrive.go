package vmspec

import (
	"cmp"
	"fmt"

	"go.yaml.in/yaml/v2"
	kyaml "sigs.k8s.io/yaml"
)

// configDrive returns meta data by the names that OpenStack has for it, as JSON.
// cloud-init takes the UUID, by default the guest's or else the instance's id, for the
// instance's id.
func (m metaData) configDrive(uuid string) (string, error) {
	names := map[any]string{keyInstanceID: "instance_id", keyHostname: "hostname", keyPublicKeys: keyDriveKeys}
	var drive metaData
	for _, item := range m {
		if item.Key == keyPublicKeys {
			item.Value = numbered(m.publicKeys())
		}
		if name, ok := names[item.Key]; ok {
			item.Key = name
		}
		drive = append(drive, item)
	}
	drive = drive.withDefault("uuid", cmp.Or(uuid, fmt.Sprint(m.get(keyInstanceID))))
	return drive.json()
}

// keyDriveKeys is the config drive's name of the public keys.
const keyDriveKeys = "public_keys"

// numbered returns keys in the config drive's form.
func numbered(keys []string) yaml.MapSlice {
	all := yaml.MapSlice{}
	for i, key := range keys {
		all = append(all, yaml.MapItem{Key: fmt.Sprint(i), Value: key})
	}
	return all
}

// json returns meta data as JSON.
func (m metaData) json() (string, error) {
	text, err := yaml.Marshal(yaml.MapSlice(m))
	if err == nil {
		text, err = kyaml.YAMLToJSON(text)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", AnnotationMetaData, err)
	}
	return string(text) + "\n", nil
}
