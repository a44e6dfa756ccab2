"""The methods: one file each, or a folder. Each registers itself; `accord.core.methods` finds them all."""
