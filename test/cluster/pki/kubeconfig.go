package pki

import (
	"encoding/json"
	"fmt"
)

type object = map[string]any

// Kubeconfig is a client's file for the API at server, a URL, with all that it needs in it.
func Kubeconfig(server string, authority []byte, client Pair) ([]byte, error) {
	const name = "nodevirt"
	text, err := json.MarshalIndent(object{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []object{{"name": name, "cluster": object{
			"server": server, "certificate-authority-data": authority,
		}}},
		"users": []object{{"name": name, "user": object{
			"client-certificate-data": client.Cert, "client-key-data": client.Key,
		}}},
		"contexts":        []object{{"name": name, "context": object{"cluster": name, "user": name}}},
		"current-context": name,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return append(text, '\n'), nil
}
