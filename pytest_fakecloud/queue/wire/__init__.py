"""What goes over the wire: headers, retry rules, filters, signatures, callbacks, records."""
