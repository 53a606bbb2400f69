package vmspec

import (
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v2"
)

// metaData is cloud-init's meta data, in the order of its author.
type metaData yaml.MapSlice

const (
	keyInstanceID = "instance-id"
	keyHostname   = "local-hostname"
	keyPublicKeys = "public-keys"
)

// seed returns the NoCloud content for a pod's annotations. It adds to the author's meta
// data what cloud-init requires, such as instance-id.
func (w wishes) seed(instance, hostname string) (*Seed, error) {
	text, err := yaml.Marshal(yaml.MapSlice(w.wholeMetaData(instance, hostname)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", AnnotationMetaData, err)
	}
	return &Seed{UserData: w.userData, MetaData: string(text), NetworkConfig: w.networkConfig}, nil
}

func (w wishes) wholeMetaData(instance, hostname string) metaData {
	meta := w.metaData.withDefault(keyInstanceID, instance).withDefault(keyHostname, hostname)
	if len(w.sshKeys) > 0 {
		meta = meta.with(keyPublicKeys, append(meta.publicKeys(), w.sshKeys...))
	}
	return meta
}

// parseMetaData reads the author's meta data; JSON is YAML.
func parseMetaData(text string) (metaData, error) {
	var mapping map[string]any // strict: no duplicate keys
	var m yaml.MapSlice        // in order
	err := yaml.UnmarshalStrict([]byte(text), &mapping)
	if err == nil {
		err = yaml.Unmarshal([]byte(text), &m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not a YAML or JSON mapping: %s",
			AnnotationMetaData, clip(err.Error(), maxPath))
	}
	if textSize(m, 0) > maxAnnotations {
		return nil, fmt.Errorf("%s: larger than %d bytes when written out",
			AnnotationMetaData, maxAnnotations)
	}
	for _, item := range m {
		key, ok := item.Key.(string)
		if !ok {
			return nil, fmt.Errorf("%s: the key %s is not a string",
				AnnotationMetaData, excerpt(fmt.Sprint(item.Key)))
		}
		if (key == keyInstanceID || key == keyHostname) && !isText(item.Value) {
			return nil, fmt.Errorf("%s: %s: must be one line of text", AnnotationMetaData, key)
		}
	}
	return metaData(m), nil
}

// textSize estimates the size of a value as text. With aliases and deep indentation, a
// few bytes can expand to gigabytes.
func textSize(value any, depth int) int {
	size := 1 + 2*depth
	switch v := value.(type) {
	case string:
		size += len(v)
	case []any:
		for _, element := range v {
			size += textSize(element, depth+1)
		}
	case yaml.MapSlice:
		for _, item := range v {
			size += textSize(item.Key, depth+1) + textSize(item.Value, depth+1)
		}
	}
	return size
}

// isText also accepts numbers: cloud-init converts them to text.
func isText(value any) bool {
	switch v := value.(type) {
	case nil, int, int64, uint64, float64:
		return true
	case string:
		return strings.IndexFunc(v, unicode.IsControl) < 0
	}
	return false
}

func (m metaData) get(key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// with returns m with the key's value in its place, or at the end.
func (m metaData) with(key string, value any) metaData {
	result := append(metaData(nil), m...)
	for i := range result {
		if result[i].Key == key {
			result[i].Value = value
			return result
		}
	}
	return append(result, yaml.MapItem{Key: key, Value: value})
}

// withDefault returns m with the key's value where m has none.
func (m metaData) withDefault(key, value string) metaData {
	if v := m.get(key); v != nil && v != "" {
		return m
	}
	return m.with(key, value)
}

// publicKeys returns the author's own keys. cloud-init accepts lines of text, a list, or
// a mapping whose values are either.
func (m metaData) publicKeys() []string { return flatten(m.get(keyPublicKeys)) }

func flatten(value any) []string {
	var keys []string
	switch v := value.(type) {
	case string:
		for line := range strings.Lines(v) {
			if line = strings.TrimSpace(line); line != "" {
				keys = append(keys, line)
			}
		}
	case []string:
		return v
	case []any:
		for _, element := range v {
			keys = append(keys, flatten(element)...)
		}
	case yaml.MapSlice:
		for _, item := range v {
			keys = append(keys, flatten(item.Value)...)
		}
	}
	return keys
}

// WithKeys returns the seed with more SSH keys, after those of its meta data, which has
// the format of a disk's source.
func (s Seed) WithKeys(source Source, keys []string) (Seed, error) {
	if len(keys) == 0 {
		return s, nil
	}
	var m metaData
	err := yaml.Unmarshal([]byte(s.MetaData), (*yaml.MapSlice)(&m)) // JSON is YAML
	if err == nil && source == SourceConfigDrive {
		m = m.with(keyDriveKeys, numbered(append(flatten(m.get(keyDriveKeys)), keys...)))
		s.MetaData, err = m.json()
		return s, err
	}
	var text []byte
	if err == nil {
		text, err = yaml.Marshal(yaml.MapSlice(m.with(keyPublicKeys, append(m.publicKeys(), keys...))))
	}
	if err != nil {
		return s, fmt.Errorf("add SSH keys to cloud-init's meta data: %w", err)
	}
	s.MetaData = string(text)
	return s, nil
}

// AuthorizedKeys reads lines of authorized_keys (sshd(8)), without blank lines and
// comments. Its errors begin with the text's origin.
func AuthorizedKeys(origin, text string) ([]string, error) {
	var keys []string
	var errs []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !isSSHKey(line):
			errs = append(errs, fmt.Errorf("%s: line %d is not a public key as in authorized_keys", origin, number))
		default:
			keys = append(keys, line)
		}
	}
	return keys, capped(errs)
}

// isSSHKey reports whether a line has a key type followed by a key; options may precede
// it.
func isSSHKey(line string) bool {
	if strings.ContainsFunc(line, unicode.IsControl) {
		return false
	}
	words := strings.Fields(line)
	for i, word := range words[:len(words)-1] {
		kind, _, _ := strings.Cut(word, "-")
		if (kind == "ssh" || kind == "ecdsa" || kind == "sk") &&
			strings.HasPrefix(words[i+1], "AAAA") {
			return true
		}
	}
	return false
}
