"""The register VM: instruction set, artifact format, interpreters."""
