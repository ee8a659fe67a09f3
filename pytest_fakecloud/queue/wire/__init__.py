"""Wire formats: headers, retry rules, filters, signatures, callbacks, records."""
