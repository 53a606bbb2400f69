package subresources

// unsupported returns KubeVirt's other subresources, with the answer to their callers.
func unsupported() map[string]string {
	return map[string]string{ //nolint:gosec // names of subresources, and no credentials
		"backup":                     "nodevirt makes no backups",
		"objectgraph":                "nodevirt keeps no graph of a VM's objects: kubectl tree, or the owner references, show it",
		"sev/fetchcertchain":         "nodevirt does not attest guests: a VM's start waits for no session",
		"sev/querylaunchmeasurement": "nodevirt does not attest guests: a VM's start waits for no session",
		"sev/setupsession":           "nodevirt does not attest guests: a VM's start waits for no session",
		"sev/injectlaunchsecret":     "nodevirt does not attest guests: a VM's start waits for no session",
	}
}
